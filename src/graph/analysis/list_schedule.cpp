#include "graph/analysis/list_schedule.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace penstock {
namespace {

// By job: among the jobs that can run, the one with the highest value runs first.
using Urgency = std::vector<double>;

// Simulates the jobs on a core and a link.
class TwoResources {
 public:
  // With `by_number`, the core takes the available job with the smallest index, and waits until it
  // can run.
  TwoResources(std::span<const Job> jobs, Urgency urgency, bool by_number)
      : jobs_(jobs), urgency_(std::move(urgency)), by_number_(by_number), states_(jobs.size()) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      states_[i].missing = jobs[i].after.size() + jobs[i].after_start.size();
      for (const auto* before : {&jobs[i].after, &jobs[i].after_start}) {
        for (const int each : *before) state(each).readers.push_back(static_cast<int>(i));
      }
      if (states_[i].missing == 0) available_.push_back(static_cast<int>(i));
    }
  }

  JobOrder Run() {
    while (!available_.empty()) {
      const auto next = Choose();
      const int job = *next;
      available_.erase(next);
      Do(job);
    }
    std::vector<int> all(jobs_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    WaitFor(std::move(all));
    order_.seconds = now_;
    return std::move(order_);
  }

 private:
  struct State {
    std::size_t missing = 0;        // predecessors that have not started
    std::vector<int> readers = {};  // successors
    double end = 0;
    bool waited = false;
  };

  const Job& job(int i) const { return jobs_[i]; }
  State& state(int i) { return states_[i]; }

  // Returns the time at which all predecessors of the job are done.
  double Ready(int i) const {
    double ready = now_;
    for (const int before : job(i).after) {
      ready = std::max(ready, states_[before].end);
    }
    return ready;
  }

  // Advances to the time at which the core has something to do, and returns that job.
  std::vector<int>::iterator Choose() {
    const int first_of_core = FirstOfCore();
    const auto may_run = [&](int i) { return !by_number_ || job(i).on_link || i == first_of_core; };
    double moment = std::numeric_limits<double>::infinity();
    for (const int i : available_) {
      if (may_run(i)) moment = std::min(moment, Ready(i));
    }
    now_ = moment;
    auto best = available_.end();
    for (auto each = available_.begin(); each < available_.end(); ++each) {
      if (!may_run(*each) || Ready(*each) > now_) continue;
      if (best == available_.end() || Before(*each, *best)) best = each;
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

  // Orders two jobs that can run now. Starting a link job costs the core nothing.
  bool Before(int a, int b) const {
    if (job(a).on_link != job(b).on_link) return job(a).on_link;
    const double urgency_a = urgency_[a];
    const double urgency_b = urgency_[b];
    return urgency_a != urgency_b ? urgency_a > urgency_b : a < b;
  }

  void Do(int i) {
    WaitFor(job(i).after);
    if (job(i).on_link) {
      link_free_ = state(i).end = std::max(now_, link_free_) + job(i).seconds;
    } else {
      now_ = state(i).end = now_ + job(i).seconds;
    }
    order_.steps.push_back({job(i).on_link ? JobStepKind::kStart : JobStepKind::kRun, i});
    for (const int reader : state(i).readers) {
      if (--state(reader).missing == 0) available_.push_back(reader);
    }
  }

  // Waits for the link jobs among `jobs`, in the order in which they end.
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
  Urgency urgency_;
  bool by_number_;
  std::vector<State> states_;   // by job
  std::vector<int> available_;  // not started, with all predecessors started
  double now_ = 0;              // the core's clock
  double link_free_ = 0;
  JobOrder order_;
};

// By job: seconds from its start to the end of the last job if there were enough cores and links.
// One second of the core counts `core`.
Urgency WaysToTheEnd(std::span<const Job> jobs, double core) {
  Urgency way(jobs.size());
  for (std::size_t i = jobs.size(); i-- > 0;) {
    way[i] += jobs[i].seconds * (jobs[i].on_link ? 1 : core);
    for (const auto* before : {&jobs[i].after, &jobs[i].after_start}) {
      for (const int each : *before) {
        double& other = way[each];
        other = std::max(other, way[i]);
      }
    }
  }
  return way;
}

}  // namespace

JobOrder ListSchedule(std::span<const Job> jobs) {
  // Ties go to the earlier entry. The third order runs everything that leads to the link first.
  constexpr double kLinkAboveAll = 1e-6;
  std::array orders = {TwoResources(jobs, Urgency(jobs.size()), /*by_number=*/true).Run(),
                       TwoResources(jobs, WaysToTheEnd(jobs, 1), false).Run(),
                       TwoResources(jobs, WaysToTheEnd(jobs, kLinkAboveAll), false).Run()};
  return *std::min_element(orders.begin(), orders.end(), [](const JobOrder& a, const JobOrder& b) {
    return a.seconds < b.seconds;
  });
}

}  // namespace penstock
