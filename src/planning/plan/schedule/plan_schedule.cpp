#include "plan/schedule/plan_schedule.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <tuple>

#include "base/mutex.h"
#include "base/system/on_all_cores.h"
#include "plan/bound/makespan_bound.h"
#include "plan/schedule/placement_search.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct NamedSchedule {
  std::string name;  // with its options
  const Algorithm* algorithm = nullptr;
  ScheduleParams params;  // checked
};

class Lister {
 public:
  explicit Lister(const ScheduleParams& params) : params_(params) {}

  // Adds the algorithm with these chunks and all values of its options.
  void Add(const Algorithm& algorithm, int chunks) {
    ScheduleParams params = params_;
    params.chunks = chunks;
    params.memory_limit.reset();
    params.objective = algorithm.supported.objective ? params_.objective : Objective::kMakespan;
    AddOne(algorithm, params, "");
    if (algorithm.supported.split) {
      params.split = true;
      AddOne(algorithm, params, ":split");
      params.split = false;
    }
    if (algorithm.supported.group) AddGroups(algorithm, params);
  }

  std::vector<NamedSchedule> Take() { return std::move(named_); }

 private:
  void AddGroups(const Algorithm& algorithm, ScheduleParams params) {
    for (int group = (params.ranks + 1) / 2; group < params.ranks; ++group) {
      params.group = group;
      AddOne(algorithm, params, fmt::format(":group={}", group));
    }
  }

  void AddOne(const Algorithm& algorithm, const ScheduleParams& params,
              const std::string& options) {
    const auto checked = CheckParams(algorithm, params);
    if (checked) named_.push_back({std::string(algorithm.name) + options, &algorithm, *checked});
  }

  const ScheduleParams& params_;
  std::vector<NamedSchedule> named_;
};

bool Searches(const Algorithm& algorithm) {
  return algorithm.name == "zb-auto" || algorithm.name == "v-auto";
}

// Returns every schedule of the catalog with a flush, for each number of chunks and each of its own
// options, without a memory limit. zb-auto and v-auto are left out.
std::vector<NamedSchedule> NamedSchedules(const ScheduleParams& params,
                                          const std::vector<int>& chunks) {
  Lister lister(params);
  for (const Algorithm& algorithm : Catalog()) {
    if (algorithm.supported.steps || Searches(algorithm)) continue;
    for (const int count : chunks) {
      const SupportedParameters& supported = algorithm.supported;
      if (count < supported.min_chunks || count > supported.max_chunks) continue;
      lister.Add(algorithm, count);
    }
  }
  return lister.Take();
}

using Form = PlacementSearch::Form;

// Searches run within multiples of a part of a microbatch: a sixteenth, or with many ranks, which
// have longer searches and more microbatches in flight, a larger part, up to a half.
double RungsPerMicrobatch(int ranks) {
  constexpr double kMost = 16, kFewest = 2, kRungsOfAllRanks = 64;
  return std::clamp(std::floor(kRungsOfAllRanks / ranks), kFewest, kMost);
}
// The effort of a first search on a placement, and how near the best of them a placement must be
// for a search with full effort.
constexpr double kLittle = 0.2;
constexpr double kNear = 0.04;
// The effort on each placement before all others, for a user who stops early, and how many of them
// are then searched with full effort.
constexpr double kGlance = 0.1;
constexpr std::size_t kFavorites = 2;

// Schedules; none is better than another in both time and memory.
class Front {
 public:
  void Add(PlannedSchedule planned) {
    for (const PlannedSchedule& other : schedules_) {
      if (Covers(other, planned)) return;
    }
    std::erase_if(schedules_, [&](const PlannedSchedule& other) { return Covers(planned, other); });
    schedules_.push_back(std::move(planned));
  }

  // The shortest length within a limit; kNever if nothing fits.
  double BestWithin(double limit) const {
    double best = kNever;
    for (const PlannedSchedule& planned : schedules_) {
      if (planned.peak_memory <= limit * (1 + kRounding)) best = std::min(best, planned.length);
    }
    return best;
  }

  const std::vector<PlannedSchedule>& schedules() const { return schedules_; }

  // Returns them by memory, ascending.
  std::vector<PlannedSchedule> Take() {
    std::sort(schedules_.begin(), schedules_.end(),
              [](const auto& a, const auto& b) { return a.peak_memory < b.peak_memory; });
    return std::move(schedules_);
  }

 private:
  // Whether `a` is at least as good as `b` in time and memory.
  static bool Covers(const PlannedSchedule& a, const PlannedSchedule& b) {
    return a.length <= b.length * (1 + kRounding) &&
           a.peak_memory <= b.peak_memory * (1 + kRounding);
  }

  std::vector<PlannedSchedule> schedules_;
};

class Planner {
 public:
  explicit Planner(const ScheduleQuestion& question)
      : question_(question), params_(question.params) {
    params_.chunks = 0;
    for (const int chunks : question.chunks) {
      if (chunks == 1) {
        AddSearch(Form::kLinear, 1);
      } else {
        AddSearch(Form::kLooped, chunks);
        AddSearch(Form::kZigzag, chunks);
        if (chunks % 2 == 0) AddSearch(Form::kWaves, chunks);
      }
    }
    for (const PlacementSearch& search : searches_) {
      least_ = std::min(least_, LeastMemory(search.placement(), search.costs()));
      unit_ = std::max(unit_, LeastMemory(search.placement(), search.costs()));
    }
    limit_ = params_.memory_limit.value_or(kNever);
  }

  Status Check() const {
    if (limit_ >= least_ * (1 - kRounding / 2)) return {};
    return InvalidParameter("memory_limit",
                            "{}: must be at least {}, the memory of one microbatch on a rank",
                            params_.memory_unit.Text(limit_), params_.memory_unit.Text(least_));
  }

  Result<SchedulePlan> Run() {
    AddNamed();
    OnAllCores(searches_.size(), [&](std::size_t i) { searches_[i].Prepare(); });
    const std::vector<double> rungs = Rungs();
    // First what the result is most likely to be, for a user who stops early. It is not used
    // otherwise: what lower limits give may not depend on this one.
    work_ = static_cast<double>(rungs.size()) + 1;
    Front early = front_;
    Glance(rungs.back(), early);
    Climb(rungs.back(), early);
    for (std::size_t i = 0; i < rungs.size() && !Stopped(); ++i) {
      Report(static_cast<double>(i) + 1);
      Climb(rungs[i], front_);
    }
    if (stopped_) {
      for (const PlannedSchedule& planned : early.schedules()) front_.Add(planned);
    }
    return Finish();
  }

 private:
  // The limits within which every placement is searched, ascending: those at which a rank of some
  // placement can hold more than before. They do not depend on the limit that is asked for, except
  // for the last, so that more memory is never worse.
  std::vector<double> Rungs() const {
    const double most = std::min(limit_, unit_ * params_.microbatches);
    std::vector<double> rungs, before(searches_.size());
    const double per_microbatch = RungsPerMicrobatch(params_.ranks);
    const double last = std::floor(most / unit_ * per_microbatch * (1 + kRounding));
    for (double rung = per_microbatch; rung <= last; ++rung) {
      const double limit = rung * unit_ / per_microbatch;
      bool any = false;
      for (std::size_t i = 0; i < searches_.size(); ++i) {
        const double amount = searches_[i].AmountWithin(limit);
        any = any || amount > before[i] * (1 + kRounding);
        before[i] = amount;
      }
      if (any) rungs.push_back(limit);
    }
    if (rungs.empty()) rungs.push_back(most);
    return rungs;
  }

  void AddSearch(Form form, int chunks) {
    const Placement placement = PlacementSearch::PlacementOf(form, params_.ranks, chunks);
    searches_.emplace_back(form, chunks, params_, CostsFor(placement));
  }

  Costs CostsFor(const Placement& placement) const {
    Costs costs = question_.costs ? question_.costs(placement) : CostsOf(params_, placement);
    costs.overlap = params_.overlap;
    return costs;
  }

  bool Stopped() {
    if (!stopped_ && question_.stop && question_.stop()) stopped_ = true;
    return stopped_;
  }

  void Report(double done) {
    if (question_.progress) question_.progress(done / work_);
  }

  void AddNamed() {
    std::vector<NamedSchedule> all = NamedSchedules(params_, question_.chunks);
    if (const auto& allowed = question_.schedules; !allowed.empty()) {
      std::erase_if(all, [&](const NamedSchedule& named) {
        return std::ranges::find(allowed, named.algorithm->name) == allowed.end();
      });
    }
    std::vector<std::optional<PlannedSchedule>> priced(all.size());
    OnAllCores(all.size(), [&](std::size_t i) {
      Schedule schedule = all[i].algorithm->generate(all[i].params);
      schedule.algorithm = all[i].algorithm->name;
      priced[i] = Price(all[i].name, std::move(schedule));
    });
    for (auto& one : priced) {
      if (one && one->schedule.placement.replicas() > 1) {
        of_replicas_.emplace_back(one->peak_memory, one->length);
      }
      if (one) Keep(std::move(*one), front_);
    }
  }

  std::optional<PlannedSchedule> Price(const std::string& name, Schedule schedule) const {
    PlannedSchedule planned;
    planned.name = name;
    planned.costs = CostsFor(schedule.placement);
    const auto result = Simulate(schedule, planned.costs);
    if (!result) return std::nullopt;
    planned.schedule = std::move(schedule);
    planned.makespan = planned.length = result->makespan;
    if (params_.objective == Objective::kSpan) {
      planned.length = 0;
      for (const RankResult& rank : result->ranks) {
        planned.length = std::max(planned.length, rank.last_end - rank.first_start);
      }
    }
    planned.peak_memory = result->peak_memory;
    return planned;
  }

  // Reports and stores what a search has found.
  void Keep(PlannedSchedule planned, Front& front) {
    if (planned.peak_memory > limit_ * (1 + kRounding)) return;
    ReportLength(planned);
    front.Add(std::move(planned));
  }

  void ReportLength(const PlannedSchedule& planned) {
    const MutexLock lock(mutex_);
    if (planned.peak_memory > limit_ * (1 + kRounding)) return;
    if (planned.length >= shortest_ * (1 - kRounding)) return;
    shortest_ = planned.length;
    if (question_.improved) question_.improved(shortest_);
  }

  double BoundOf(const PlacementSearch& search, double limit) const {
    return LengthBound(search.placement(), search.costs(), params_.microbatches, limit,
                       params_.objective, search.splits_backward());
  }

  // The lowest bound within a limit over all placements that are searched, and the shortest of the
  // other schedules.
  double LowestBound(double limit) const {
    double lowest = kNever;
    for (const PlacementSearch& search : searches_) {
      // Whole backwards have no lower bound than split ones.
      if (search.splits_backward()) lowest = std::min(lowest, BoundOf(search, limit));
    }
    for (const auto& [memory, length] : of_replicas_) {
      if (memory <= limit * (1 + kRounding)) lowest = std::min(lowest, length);
    }
    return lowest;
  }

  // Searches within one limit with hardly any effort on every placement, then with all on the
  // best of them.
  void Glance(double limit, Front& front) {
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      if (!searches_[i].splits_backward()) continue;  // takes the same effort whatever is asked
      const double amount = searches_[i].AmountWithin(limit);
      if (MayHelp(i, amount, front.BestWithin(limit))) tasks.push_back({i, amount, kGlance});
    }
    RunAll(tasks, front);
    if (Stopped()) return;
    SortByLength(tasks);
    if (tasks.size() > kFavorites) tasks.resize(kFavorites);
    for (auto& [i, amount, effort] : tasks) effort = 1;
    std::erase_if(tasks, [&](const Task& task) {
      return !MayHelp(std::get<0>(task), std::get<1>(task), front.BestWithin(limit));
    });
    RunAll(tasks, front);
  }

  // Searches within one limit on every placement that may help.
  void Climb(double limit, Front& front) {
    std::vector<Task> first, second;
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      const double amount = searches_[i].AmountWithin(limit);
      if (!MayHelp(i, amount, front.BestWithin(limit))) continue;
      first.push_back({i, amount, searches_[i].is_cataloged() ? 1 : kLittle});
    }
    RunAll(first, front);
    double best = kNever;
    for (const Task& task : first) best = std::min(best, LengthOf(task));
    SortByLength(first);  // for a user who stops early
    for (const Task& task : first) {
      const auto& [i, amount, effort] = task;
      if (effort >= 1 || LengthOf(task) > best * (1 + kNear)) continue;
      if (MayHelp(i, amount, front.BestWithin(limit))) second.push_back({i, amount, 1});
    }
    RunAll(second, front);
  }

  // The search, its limit and its effort.
  using Task = std::tuple<std::size_t, double, double>;

  bool MayHelp(std::size_t i, double amount, double best) const {
    if (LeastMemory(searches_[i].placement(), searches_[i].costs()) > amount * (1 + kRounding)) {
      return false;
    }
    return BoundOf(searches_[i], amount) < best * (1 - kRounding);
  }

  // Adds what the tasks find to the front. Runs tasks that have not run.
  void RunAll(const std::vector<Task>& tasks, Front& front) {
    std::vector<const Task*> open;
    for (const Task& task : tasks) {
      if (!found_.contains(task)) open.push_back(&task);
    }
    std::vector<std::optional<PlannedSchedule>> found(open.size());
    OnAllCores(open.size(), [&](std::size_t i) {
      if (question_.stop && question_.stop()) return;
      found[i] = Search(*open[i]);
      if (found[i]) ReportLength(*found[i]);
    });
    for (std::size_t i = 0; i < open.size(); ++i) found_[*open[i]] = std::move(found[i]);
    for (const Task& task : tasks) {
      if (const auto& planned = found_[task]) Keep(*planned, front);
    }
  }

  std::optional<PlannedSchedule> Search(const Task& task) const {
    const auto& [which, amount, effort] = task;
    const PlacementSearch& search = searches_[which];
    Schedule schedule;
    schedule.algorithm = search.NameWithin(amount);
    schedule.placement = search.placement();
    schedule.microbatches = params_.microbatches;
    schedule.lanes = search.Run(amount, effort);
    return Price(search.NameWithin(amount), std::move(schedule));
  }

  void SortByLength(std::vector<Task>& tasks) const {
    std::stable_sort(tasks.begin(), tasks.end(),
                     [&](const Task& a, const Task& b) { return LengthOf(a) < LengthOf(b); });
  }

  double LengthOf(const Task& task) const {
    const auto& planned = found_.at(task);
    return planned ? planned->length : kNever;
  }

  Result<SchedulePlan> Finish() {
    SchedulePlan plan;
    plan.front = front_.Take();
    if (plan.front.empty()) {
      return InvalidParameter("ranks", "{}: no schedule of these sizes fits the limit",
                              params_.ranks);
    }
    for (PlannedSchedule& planned : plan.front) {
      planned.lower_bound = LowestBound(planned.peak_memory);
      planned.placement_bound = LengthBound(planned.schedule.placement, planned.costs,
                                            params_.microbatches, limit_, params_.objective);
    }
    plan.lower_bound = LowestBound(limit_);
    plan.searches = static_cast<int>(found_.size());
    plan.stopped = stopped_;
    return plan;
  }

  const ScheduleQuestion& question_;
  ScheduleParams params_;
  std::deque<PlacementSearch> searches_;
  double least_ = kNever, unit_ = 0;  // the memory of one microbatch, over placements
  double limit_ = kNever;
  double work_ = 1;
  bool stopped_ = false;
  // Memory and length of the schedules with two chains, which are priced but not searched.
  std::vector<std::pair<double, double>> of_replicas_;
  Front front_;
  Mutex mutex_;
  double shortest_ PENSTOCK_GUARDED_BY(mutex_) = kNever;
  std::map<Task, std::optional<PlannedSchedule>> found_;
};

}  // namespace

Result<SchedulePlan> PlanSchedule(const ScheduleQuestion& question) {
  const ScheduleParams& params = question.params;
  const std::pair<const char*, int> counts[] = {{"ranks", params.ranks},
                                                {"microbatches", params.microbatches}};
  for (const auto& [name, count] : counts) {
    if (count < 1) return InvalidParameter(name, "{}: must be at least 1", count);
  }
  if (question.chunks.empty()) return InvalidParameter("chunks", ": give at least one number");
  for (const int chunks : question.chunks) {
    if (chunks < 1) return InvalidParameter("chunks", "{}: must be at least 1", chunks);
    if (std::int64_t{chunks} * params.ranks > kMaxStages) {
      return InvalidParameter("chunks", "{}: with {} ranks, there can be at most {} stages", chunks,
                              params.ranks, kMaxStages);
    }
  }
  Planner planner(question);
  PENSTOCK_TRY_STATUS(planner.Check());
  return planner.Run();
}

}  // namespace penstock
