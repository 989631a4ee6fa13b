#include "plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "base/units.h"
#include "plan/search/pricing.h"
#include "plan/search/stage_split.h"

namespace penstock {
namespace {

constexpr double kUsableMemory = 0.95;
constexpr double kSlowest = 1.1;      // plans of the front, relative to the fastest
constexpr std::size_t kBatch = 16;    // divisions that are priced before others are ruled out
constexpr std::size_t kSearched = 8;  // divisions whose schedules are searched
constexpr std::size_t kSplit = 6;     // plans whose layers are moved
constexpr std::size_t kRunnersUp = 8;
// Parts of the work, as the bar shows them.
constexpr double kDivisionsDone = 0.1, kSchedulesDone = 0.7, kSearchesDone = 0.85;

// A division with the price of 1F1B.
struct PricedDivision {
  TrainingPlan plan;
  double least_time = 0;   // of any schedule: the work of the mean rank
  double least_bytes = 0;  // of any schedule: without activations
  bool is_needless = false;
};

class PlanSearch {
 public:
  explicit PlanSearch(const PlanQuestion& question) : question_(question) {}

  Result<PlanAnswer> Run() {
    PENSTOCK_TRY_STATUS(Prepare());
    PENSTOCK_TRY_STATUS(PriceDivisions());
    PriceSchedules();
    SearchSchedules();
    MoveLayers();
    return Answer();
  }

 private:
  Status Prepare() {
    if (question_.global_batch < 1) {
      return InvalidParameter("global_batch", ": the samples of a step are needed");
    }
    Scenario scenario = question_.scenario;
    scenario.zero.reset();  // which needs replicas
    PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
    limit_ = question_.memory_limit > 0 ? question_.memory_limit
                                        : kUsableMemory * model.cluster.device.memory;
    asked_.scenario = &question_.scenario;
    asked_.shape = model.shape;
    asked_.devices = model.cluster.devices();
    asked_.linked_devices = model.cluster.linked_devices();
    asked_.global_batch = question_.global_batch;
    asked_.sequence = model.batch.sequence;
    asked_.most_tensor = question_.most_tensor;
    asked_.most_context = question_.most_context;
    asked_.most_zero = question_.most_zero;
    return {};
  }

  Status PriceDivisions() {
    const std::vector<JobDivision> divisions = JobDivisions(asked_);
    if (divisions.empty()) {
      return InvalidParameter("global_batch",
                              "{}: no division of {} devices has whole microbatches with what is "
                              "fixed; change it, or leave dimensions open",
                              question_.global_batch, asked_.devices);
    }
    std::vector<Result<TrainingPlan>> plans(divisions.size());
    OnAllCores(divisions.size(), [&](std::size_t i) {
      plans[i] = PriceOf(question_.scenario, divisions[i], {.name = "1f1b"});
    });
    for (Result<TrainingPlan>& plan : plans) {
      if (!plan) {
        if (refused_.empty()) refused_ = plan.error().line();
        continue;
      }
      ++answer_.searched;
      PricedDivision priced{.plan = *std::move(plan)};
      SetLeast(priced);
      divisions_.push_back(std::move(priced));
    }
    if (divisions_.empty()) return InvalidArgument("no division can be priced: {}", refused_);
    PENSTOCK_TRY_STATUS(RefuseIfNothingFits());
    MarkNeedless();
    std::ranges::stable_sort(divisions_, {}, [](const PricedDivision& priced) {
      return std::pair(priced.is_needless, priced.least_time);
    });
    question_.progress(kDivisionsDone);
    return {};
  }

  // Recomputation and sharding cost time to save memory. Where 1F1B fits with less of both, more of
  // them comes last: only a schedule that does not fit otherwise can make it the fastest.
  void MarkNeedless() {
    std::map<std::tuple<int, int, int, int, int>, double> shortest;
    const auto key = [](const PricedDivision& priced) {
      const JobDivision& of = priced.plan.division;
      return std::tuple(of.tensor, of.context, of.pipeline, of.expert, of.micro_batch);
    };
    for (const PricedDivision& priced : divisions_) {
      if (!Fits(priced.plan)) continue;
      const auto [found, added] = shortest.emplace(key(priced), priced.plan.step_time());
      if (!added) found->second = std::min(found->second, priced.plan.step_time());
    }
    for (PricedDivision& priced : divisions_) {
      const auto found = shortest.find(key(priced));
      priced.is_needless = found != shortest.end() && priced.plan.step_time() > found->second;
    }
  }

  static void SetLeast(PricedDivision& priced) {
    const TrainingPlan& plan = priced.plan;
    const StepEstimate& estimate = plan.estimate;
    // Work moves between ranks with the layers; what follows the pipeline, too.
    priced.least_time = plan.mean_busy;
    for (const PeakBytes& rank : estimate.ranks) {
      priced.least_bytes += (rank.total() - rank.activations - rank.workspace) /
                            static_cast<double>(estimate.ranks.size());
    }
  }

  Status RefuseIfNothingFits() const {
    const auto least = std::ranges::min_element(divisions_, {}, &PricedDivision::least_bytes);
    if (least->least_bytes <= limit_) return {};
    const TrainingPlan& plan = least->plan;
    const JobDivision& division = plan.division;
    std::size_t worst = 0;
    for (std::size_t rank = 1; rank < plan.estimate.ranks.size(); ++rank) {
      const auto& ranks = plan.estimate.ranks;
      if (ranks[rank].total() > ranks[worst].total()) worst = rank;
    }
    const PeakBytes& held = plan.estimate.ranks[worst];
    const double states = held.weights + held.gradients + held.optimizer;
    return InvalidParameter(
        "nodes",
        ": {} devices with {} each do not fit the model: with tensor {}, pipeline {}, context {}, "
        "zero {} and recompute {}, pipeline rank {} needs {} ({} of states); {} times as many "
        "devices would hold the states",
        asked_.devices, Bytes(limit_), division.tensor, division.pipeline, division.context,
        division.zero, division.recompute, worst, Bytes(held.total()), Bytes(states),
        TimesAsMany(least->least_bytes));
  }

  int TimesAsMany(double bytes) const {
    int times = 2;
    while (bytes / times > limit_) times *= 2;
    return times;
  }

  static std::string Bytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

  bool Fits(const TrainingPlan& plan) const { return plan.bytes() <= limit_; }

  // Whether no schedule of the division can be among the answers.
  bool IsRuledOut(const PricedDivision& division) const {
    if (division.least_bytes > limit_) return true;
    if (division.least_time > (division.is_needless ? 1 : kSlowest) * fastest_) return true;
    return std::ranges::any_of(front_, [&](const TrainingPlan& plan) {
      return plan.step_time() <= division.least_time && plan.bytes() <= division.least_bytes;
    });
  }

  struct Job {
    const PricedDivision* division = nullptr;
    ScheduleChoice choice;
  };

  void PriceSchedules() {
    for (std::size_t begin = 0; begin < divisions_.size() && !Stopped(); begin += kBatch) {
      std::vector<Job> jobs;
      for (std::size_t i = begin; i < std::min(begin + kBatch, divisions_.size()); ++i) {
        if (IsRuledOut(divisions_[i])) continue;
        for (ScheduleChoice& choice : ChoicesOf(divisions_[i])) {
          if (!choice.searches) jobs.push_back({&divisions_[i], std::move(choice)});
        }
      }
      Price(jobs);
      Progress(kDivisionsDone, kSchedulesDone, begin, divisions_.size());
    }
  }

  std::vector<ScheduleChoice> ChoicesOf(const PricedDivision& division) const {
    std::vector<ScheduleChoice> choices =
        ScheduleChoices(division.plan.division.pipeline, asked_.shape.layers, question_.schedules,
                        question_.excluded);
    if (question_.chunks.empty()) return choices;
    std::erase_if(choices, [&](const ScheduleChoice& choice) {
      return std::ranges::find(question_.chunks, choice.chunks) == question_.chunks.end();
    });
    return choices;
  }

  // Schedules that are searched take long, so only the fastest divisions get them.
  void SearchSchedules() {
    std::vector<const PricedDivision*> fastest;
    for (const PricedDivision& division : divisions_) {
      if (division.least_bytes <= limit_ && division.least_time < fastest_ &&
          !division.is_needless) {
        fastest.push_back(&division);
      }
    }
    if (fastest.size() > kSearched) fastest.resize(kSearched);
    for (std::size_t i = 0; i < fastest.size() && !Stopped(); ++i) {
      std::vector<Job> jobs;
      for (ScheduleChoice& choice : ChoicesOf(*fastest[i])) {
        if (choice.searches) jobs.push_back({fastest[i], std::move(choice)});
      }
      Price(jobs);
      Progress(kSchedulesDone, kSearchesDone, i, fastest.size());
    }
  }

  void Price(const std::vector<Job>& jobs) {
    std::vector<std::optional<TrainingPlan>> priced(jobs.size());
    OnAllCores(jobs.size(), [&](std::size_t i) {
      auto plan = PriceOf(question_.scenario, jobs[i].division->plan.division, jobs[i].choice);
      if (plan) priced[i] = *std::move(plan);
    });
    for (std::optional<TrainingPlan>& plan : priced) {
      if (!plan) continue;
      ++answer_.searched;
      if (Fits(*plan)) Keep(*std::move(plan));
    }
  }

  void Keep(TrainingPlan plan) {
    fastest_ = std::min(fastest_, plan.step_time());
    plans_.push_back(plan);
    front_.push_back(std::move(plan));
    front_ = FrontOf(std::move(front_));
  }

  void MoveLayers() {
    std::vector<TrainingPlan> fastest = plans_;
    std::ranges::stable_sort(fastest, {}, &TrainingPlan::step_time);
    if (fastest.size() > kSplit) fastest.resize(kSplit);
    for (std::size_t i = 0; i < fastest.size() && !Stopped(); ++i) {
      TrainingPlan moved =
          WithBestSplit(fastest[i], [&](const TrainingPlan& plan) { return Fits(plan); });
      ++answer_.searched;
      if (moved.step_time() < fastest[i].step_time()) Keep(std::move(moved));
      Progress(kSearchesDone, 1, i, fastest.size());
    }
  }

  Result<PlanAnswer> Answer() {
    if (plans_.empty()) {
      const auto least = std::ranges::min_element(
          divisions_, {}, [](const PricedDivision& each) { return each.plan.bytes(); });
      return InvalidParameter("nodes",
                              ": no schedule fits {} devices with {} each; 1f1b with tensor {}, "
                              "pipeline {} and recompute {} needs {}",
                              asked_.devices, Bytes(limit_), least->plan.division.tensor,
                              least->plan.division.pipeline, least->plan.division.recompute,
                              Bytes(least->plan.bytes()));
    }
    for (TrainingPlan& plan : front_) {
      if (plan.step_time() <= kSlowest * fastest_) answer_.front.push_back(std::move(plan));
    }
    for (TrainingPlan& plan : answer_.front) AddBound(plan);
    AddRunnersUp();
    answer_.memory_limit = limit_;
    answer_.stopped = stopped_;
    return std::move(answer_);
  }

  // The fastest of each division and schedule, other than the best.
  void AddRunnersUp() {
    std::ranges::stable_sort(plans_, {}, &TrainingPlan::step_time);
    std::vector<std::pair<std::string, std::string>> seen;
    const auto key = [](const TrainingPlan& plan) {
      const JobDivision& of = plan.division;
      return std::pair(
          fmt::format("{} {} {} {} {}", of.tensor, of.context, of.pipeline, of.expert, of.zero),
          plan.schedule);
    };
    seen.push_back(key(answer_.front.front()));
    for (TrainingPlan& plan : plans_) {
      if (answer_.runners_up.size() == kRunnersUp) break;
      const bool is_new = std::ranges::none_of(seen, [&](const auto& each) {
        return each.first == key(plan).first || each == key(plan);
      });
      if (!is_new) continue;
      seen.push_back(key(plan));
      answer_.runners_up.push_back(std::move(plan));
    }
  }

  bool Stopped() {
    stopped_ = stopped_ || (question_.stop() && !plans_.empty());
    return stopped_;
  }

  void Progress(double from, double to, std::size_t done, std::size_t all) const {
    question_.progress(from + (to - from) * static_cast<double>(done) / static_cast<double>(all));
  }

  const PlanQuestion& question_;
  DivisionQuestion asked_;
  double limit_ = 0;
  std::string refused_;  // why the first division has no price
  std::vector<PricedDivision> divisions_;
  std::vector<TrainingPlan> plans_, front_;
  double fastest_ = std::numeric_limits<double>::infinity();
  bool stopped_ = false;
  PlanAnswer answer_;
};

}  // namespace

Result<PlanAnswer> SearchPlans(const PlanQuestion& question) { return PlanSearch(question).Run(); }

}  // namespace penstock
