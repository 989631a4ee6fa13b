#include "graph/analysis/list_schedule.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace penstock {
namespace {

// By job. Among the jobs that can run, the one with the highest priority runs first.
using Priorities = std::vector<double>;

// Simulates the jobs on one core and one link.
class TwoResources {
 public:
  // With `in_index_order`, the core runs the available job with the smallest index next and waits
  // until that job can run.
  TwoResources(std::span<const Job> jobs, Priorities priorities, bool in_index_order)
      : jobs_(jobs),
        priorities_(std::move(priorities)),
        in_index_order_(in_index_order),
        states_(jobs.size()) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      states_[i].missing = jobs[i].after.size() + jobs[i].after_start.size();
      for (const auto* before : {&jobs[i].after, &jobs[i].after_start}) {
        for (const int each : *before) state(each).successors.push_back(static_cast<int>(i));
      }
      if (states_[i].missing == 0) available_.push_back(static_cast<int>(i));
    }
  }

  JobOrder Run() {
    while (!available_.empty()) {
      const auto next = Choose();
      const int job = *next;
      available_.erase(next);
      Start(job);
    }
    std::vector<int> all(jobs_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    WaitFor(std::move(all));
    order_.seconds = now_;
    return std::move(order_);
  }

 private:
  struct State {
    std::size_t missing = 0;  // predecessors that have not started
    std::vector<int> successors = {};
    double end = 0;
    bool waited = false;
  };

  const Job& job(int i) const { return jobs_[i]; }
  State& state(int i) { return states_[i]; }

  // Returns the time at which all predecessors of the job have ended.
  double ReadyTime(int i) const {
    double ready = now_;
    for (const int before : job(i).after) {
      ready = std::max(ready, states_[before].end);
    }
    return ready;
  }

  // Advances to the time at which the next job can run, and returns that job.
  std::vector<int>::iterator Choose() {
    const int first_of_core = FirstOfCore();
    const auto may_run = [&](int i) {
      return !in_index_order_ || job(i).on_link || i == first_of_core;
    };
    double moment = std::numeric_limits<double>::infinity();
    for (const int i : available_) {
      if (may_run(i)) moment = std::min(moment, ReadyTime(i));
    }
    now_ = moment;
    auto best = available_.end();
    for (auto each = available_.begin(); each < available_.end(); ++each) {
      if (!may_run(*each) || ReadyTime(*each) > now_) continue;
      if (best == available_.end() || RunsBefore(*each, *best)) best = each;
    }
    return best;
  }

  // Returns -1 if no core job is available.
  int FirstOfCore() const {
    int first = -1;
    for (const int i : available_) {
      if (!job(i).on_link && (first < 0 || i < first)) first = i;
    }
    return first;
  }

  // Orders two jobs that can run now. Link jobs precede: starting one takes the core no time.
  bool RunsBefore(int a, int b) const {
    if (job(a).on_link != job(b).on_link) return job(a).on_link;
    if (job(a).fills != job(b).fills) return job(b).fills;
    return priorities_[a] != priorities_[b] ? priorities_[a] > priorities_[b] : a < b;
  }

  void Start(int i) {
    WaitFor(job(i).after);
    if (job(i).on_link) {
      link_free_ = state(i).end = std::max(now_, link_free_) + job(i).seconds;
    } else {
      now_ = state(i).end = now_ + job(i).seconds;
    }
    order_.steps.push_back({job(i).on_link ? JobStepKind::kStart : JobStepKind::kRun, i});
    for (const int next : state(i).successors) {
      if (--state(next).missing == 0) available_.push_back(next);
    }
  }

  // Waits for the link jobs among `jobs` in the order in which they end.
  void WaitFor(std::vector<int> jobs) {
    std::erase_if(jobs, [&](int i) { return !job(i).on_link || state(i).waited; });
    std::sort(jobs.begin(), jobs.end(), [&](int a, int b) {
      return state(a).end != state(b).end ? state(a).end < state(b).end : a < b;
    });
    for (const int i : jobs) {
      if (std::exchange(state(i).waited, true)) continue;
      order_.steps.push_back({JobStepKind::kWait, i});
      now_ = std::max(now_, state(i).end);
    }
  }

  std::span<const Job> jobs_;
  Priorities priorities_;
  bool in_index_order_;
  std::vector<State> states_;   // by job
  std::vector<int> available_;  // not started, but all predecessors are
  double now_ = 0;              // the core's clock
  double link_free_ = 0;
  JobOrder order_;
};

// Returns, by job, the length of the longest path from its start to the end of the last job. Core
// time is weighted by `core_weight`.
Priorities LongestPaths(std::span<const Job> jobs, double core_weight) {
  Priorities path(jobs.size());
  for (std::size_t i = jobs.size(); i-- > 0;) {
    path[i] += jobs[i].seconds * (jobs[i].on_link ? 1 : core_weight);
    for (const auto* before : {&jobs[i].after, &jobs[i].after_start}) {
      for (const int each : *before) {
        double& other = path[each];
        other = std::max(other, path[i]);
      }
    }
  }
  return path;
}

}  // namespace

JobOrder ListSchedule(std::span<const Job> jobs) {
  // The first of the shortest orders wins. The third one favors paths with much link time.
  constexpr double kLinkFirst = 1e-6;
  std::array orders = {TwoResources(jobs, Priorities(jobs.size()), /*in_index_order=*/true).Run(),
                       TwoResources(jobs, LongestPaths(jobs, 1), false).Run(),
                       TwoResources(jobs, LongestPaths(jobs, kLinkFirst), false).Run()};
  return *std::min_element(orders.begin(), orders.end(), [](const JobOrder& a, const JobOrder& b) {
    return a.seconds < b.seconds;
  });
}

}  // namespace penstock
