#include "plan/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/index.h"
#include "base/system/on_all_cores.h"
#include "base/units.h"
#include "plan/search/bounds.h"
#include "plan/search/engine_model.h"
#include "plan/search/indivisible.h"
#include "plan/search/misfit.h"
#include "plan/search/pricing.h"
#include "plan/search/stage_split.h"
#include "scenario/machine/machine_file.h"

namespace penstock {
namespace {

constexpr double kUsableMemory = 0.95;
constexpr double kSlowest = 1.25;     // plans of the front, relative to the fastest
constexpr std::size_t kBatch = 8;     // divisions that are priced before others are ruled out
constexpr std::size_t kFront = 64;    // divisions that are priced only for the front
constexpr std::size_t kSearched = 6;  // divisions whose schedules are all priced
constexpr std::size_t kSplit = 6;     // plans whose layers are moved
constexpr int kMostSearchedChunks = 4;
constexpr std::size_t kRunnersUp = 8;
constexpr std::size_t kBestOfDivisions = 24;
// Parts of the work, as the bar shows them.
constexpr double kBoundsDone = 0.1, kSchedulesDone = 0.7, kSearchesDone = 0.85;

struct BoundedDivision {
  JobDivision division;
  DivisionBounds least;
  WorkTimes times = {};  // once it is priced
};

class PlanSearch {
 public:
  explicit PlanSearch(const PlanQuestion& question) : question_(question) {}

  std::optional<TrainingPlan> LeastMemory() {
    if (!Prepare() || !BoundDivisions()) return std::nullopt;
    PriceLeast();
    return std::move(least_bytes_);
  }

  Result<PlanAnswer> Run() {
    PENSTOCK_TRY_STATUS(Prepare());
    PENSTOCK_TRY_STATUS(BoundDivisions());
    PriceSchedules();
    SearchSchedules();
    MoveLayers();
    return Answer();
  }

  // Whether Run() found no plan that fits.
  bool fits_nothing() const { return fits_nothing_; }

  // Prices what it says.
  Error DoesNotFit() {
    PriceLeast();
    if (least_bytes_) return MisfitOf(question_, limit_, *least_bytes_);
    const auto least = std::ranges::min_element(
        divisions_, {}, [](const BoundedDivision& each) { return each.least.bytes; });
    return {
        ErrorCode::kInvalidArgument,
        fmt::format(": {} devices with {} each do not fit the model: it needs at least {} there",
                    asked_.devices, Bytes(limit_), Bytes(least->least.bytes)),
        "nodes"};
  }

 private:
  Status Prepare() {
    if (question_.global_batch < 1) {
      return InvalidParameter("global_batch", ": the samples of a step are needed");
    }
    Scenario scenario = question_.scenario;
    // Each division has its own, and some need others.
    scenario.tensor = scenario.context = scenario.data = scenario.expert = {};
    scenario.expert_tensor = scenario.zero = scenario.zero_ranks = {};
    scenario.expert_imbalance.reset();
    scenario.across_sites.reset();
    PENSTOCK_TRY_STATUS(FillFromMachine(scenario));
    PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
    for (const Precision precision : question_.precisions) {
      scenario.precision = kPrecisionNames[static_cast<std::size_t>(precision)];
      PENSTOCK_TRY_STATUS(scenario.Load());
    }
    limit_ =
        question_.memory_limit > 0 ? question_.memory_limit : kUsableMemory * MeanMemory(model);
    asked_.scenario = &question_.scenario;
    asked_.shape = model.shape;
    asked_.devices = model.cluster.devices();
    asked_.linked_devices = model.cluster.linked_devices();
    asked_.global_batch = question_.global_batch;
    asked_.sequence = model.batch.sequence;
    precision_ = model.batch.precision;
    asked_.precisions = question_.precisions;
    asked_.framework = &question_.framework;
    device_ = model.cluster.device;
    asked_.device = &device_;
    asked_.may_gather_again = model.batch.profile.get().gathers_once;
    asked_.sequence_parallel = model.batch.sequence_parallel;
    asked_.shards_over_context = model.batch.profile.get().shards_over_context;
    asked_.exchanges = question_.scenario.context_exchange
                           ? std::vector{model.batch.context_exchange}
                           : question_.framework.exchanges;
    engine_model_ = EngineModelOf(model.shape, scenario.model.value_or(""), asked_.sequence);
    return {};
  }

  Status BoundDivisions() {
    std::vector<JobDivision> divisions = JobDivisions(asked_);
    if (divisions.empty()) {
      if (const auto error = IndivisibleDimension(asked_)) return tl::unexpected(*error);
      return InvalidParameter("global_batch",
                              "{}: no division of {} devices has whole microbatches with what is "
                              "fixed; change it, or leave dimensions open",
                              question_.global_batch, asked_.devices);
    }
    std::erase_if(divisions, [&](const JobDivision& division) {
      const Status runs = Check(division, {});
      if (!runs && !refused_) refused_ = runs.error();
      return !runs;
    });
    if (divisions.empty()) {
      refused_->message += question_.advice;
      return tl::unexpected(*refused_);
    }
    std::vector<Result<DivisionBounds>> bounds(divisions.size());
    OnAllCores(divisions.size(), [&](std::size_t i) { bounds[i] = BoundsOfFastest(divisions[i]); });
    for (std::size_t i = 0; i < divisions.size(); ++i) {
      if (bounds[i]) {
        divisions_.push_back({divisions[i], *bounds[i]});
      } else if (!refused_) {
        refused_ = bounds[i].error();
      }
    }
    if (divisions_.empty()) return tl::unexpected(*refused_);
    answer_.divisions = divisions_.size();
    std::ranges::stable_sort(divisions_, [](const BoundedDivision& a, const BoundedDivision& b) {
      return std::pair(a.least.time, a.least.bytes) < std::pair(b.least.time, b.least.bytes);
    });
    question_.progress(kBoundsDone);
    return {};
  }

  // Chooses among the kernels of a division.
  Result<DivisionBounds> BoundsOfFastest(JobDivision& division) const {
    Result<DivisionBounds> least = tl::unexpected(Error());
    for (const JobDivision& variant : KernelVariants(asked_, division)) {
      auto bounds = BoundsOf(question_.scenario, variant);
      if (least && (!bounds || bounds->time >= least->time)) continue;
      least = std::move(bounds);
      division = variant;
    }
    return least;
  }

  // Bounds are of the mean of all ranks.
  static double MeanMemory(const ModelOnCluster& model) {
    const Cluster& cluster = model.cluster;
    if (cluster.groups.empty()) return cluster.device.memory;
    double sum = 0;
    for (const NodeGroup& group : cluster.groups) sum += group.nodes * group.device.memory;
    return sum / cluster.nodes;
  }

  // Whether the framework runs the division with a schedule; one without a name is not chosen.
  Status Check(const JobDivision& division, const ScheduleChoice& choice,
               const Schedule* schedule = nullptr) const {
    if (question_.framework.check == nullptr) return {};
    return question_.framework.check(
        {.division = division,
         .chunks = choice.chunks,
         .algorithm = choice.name,
         .shape = asked_.shape,
         .precision = division.precision.value_or(precision_),
         .engine_model = engine_model_,
         .sequence_parallel = question_.scenario.sequence_parallel.value_or(true),
         .sites = question_.scenario.sites.value_or(1),
         .schedule = schedule,
         .layers = choice.layers});
  }

  static std::string Bytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

  double LimitOf(const TrainingPlan& plan, std::size_t rank) const {
    return question_.memory_limit > 0 ? limit_ : kUsableMemory * plan.memory[rank];
  }
  bool Fits(const TrainingPlan& plan) const {
    for (std::size_t rank = 0; rank < plan.memory.size(); ++rank) {
      if (plan.estimate.ranks[rank].total() > LimitOf(plan, rank)) return false;
    }
    return true;
  }

  static JobDivision WithoutSavings(JobDivision division) {
    division.recompute.clear();
    division.gather_again = false;
    division.offloaded_layers = 0;
    return division;
  }

  const BoundedDivision& DivisionOf(const TrainingPlan& plan) const {
    return *std::ranges::find(divisions_, plan.division, &BoundedDivision::division);
  }

  // Whether no schedule of the division can be the fastest.
  bool IsSlow(const BoundedDivision& each) const {
    return each.least.bytes > limit_ || each.least.time >= fastest_ ||
           fits_whole_.contains(WithoutSavings(each.division));
  }
  // Whether no schedule of the division can be in the front.
  bool IsRuledOut(const BoundedDivision& each) const {
    if (each.least.bytes > limit_ || each.least.time > kSlowest * fastest_) return true;
    return std::ranges::any_of(front_, [&](const TrainingPlan& plan) {
      return plan.step_time() <= each.least.time && plan.bytes() <= each.least.bytes;
    });
  }

  struct Job {
    const BoundedDivision* division = nullptr;
    ScheduleChoice choice;
    double memory_limit = 0;  // of activations, for a search; 0: none
  };

  // The fastest first, then some more for the front.
  void PriceSchedules() {
    std::size_t for_front = 0;
    std::vector<BoundedDivision*> batch;
    const auto price = [&](std::size_t done) {
      Price(batch);
      batch.clear();
      Progress(kBoundsDone, kSchedulesDone, done, divisions_.size());
    };
    for (std::size_t i = 0; i < divisions_.size() && !Stopped(); ++i) {
      BoundedDivision& each = divisions_[i];
      if (IsSlow(each)) {
        if (IsRuledOut(each) || for_front == kFront) continue;
        ++for_front;
      }
      batch.push_back(&each);
      if (batch.size() == kBatch) price(i);
    }
    price(divisions_.size());
  }

  void Price(const std::vector<BoundedDivision*>& batch) {
    OnAllCores(batch.size(), [&](std::size_t i) {
      auto times = WorkTimesOf(question_.scenario, batch[i]->division);
      if (times) batch[i]->times = *std::move(times);
    });
    std::vector<Job> jobs;
    for (const BoundedDivision* each : batch) {
      for (ScheduleChoice& choice : ChoicesOf(*each)) {
        if (choice.is_common) jobs.push_back({each, std::move(choice)});
      }
    }
    std::vector<bool> fits = Price(jobs);
    // What saves memory is of use where some schedule needs too much of it.
    for (const BoundedDivision* each : batch) {
      bool all_fit = true;
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        if (jobs[i].division == each && !fits[i]) all_fit = false;
      }
      if (all_fit) fits_whole_.insert(WithoutSavings(each->division));
    }
  }

  std::vector<ScheduleChoice> ChoicesOf(const BoundedDivision& each) const {
    std::vector<ScheduleChoice> choices =
        ScheduleChoices(each.division.pipeline, static_cast<int>(asked_.shape.layers),
                        question_.schedules, question_.excluded);
    std::erase_if(choices,
                  [&](const ScheduleChoice& choice) { return !Check(each.division, choice); });
    std::erase_if(choices, [&](const ScheduleChoice& choice) {
      return !question_.chunks.empty() &&
             std::ranges::find(question_.chunks, choice.chunks) == question_.chunks.end();
    });
    // If the user allows only schedules that take long, these are priced for every division.
    if (std::ranges::none_of(choices, &ScheduleChoice::is_common)) {
      for (ScheduleChoice& choice : choices) choice.is_common = true;
    }
    return choices;
  }

  // The other schedules, for the fastest divisions: first rule-based ones, then ones that take long
  // to search.
  void SearchSchedules() {
    std::vector<TrainingPlan> fastest = FastestOfDivisions(kSearched);
    for (std::size_t i = 0; i < fastest.size() && !Stopped(); ++i) {
      const BoundedDivision& division = DivisionOf(fastest[i]);
      for (const bool searches : {false, true}) {
        if (division.least.time >= fastest_) break;
        Price(OtherSchedules(division, searches, LeftIn(fastest[i])));
      }
      Progress(kSchedulesDone, kSearchesDone, i, fastest.size());
    }
  }

  std::vector<Job> OtherSchedules(const BoundedDivision& each, bool searches,
                                  double memory_left) const {
    std::vector<Job> jobs;
    for (ScheduleChoice& choice : ChoicesOf(each)) {
      if (choice.is_common || choice.searches != searches) continue;
      const bool is_long = searches && choice.chunks > kMostSearchedChunks;
      if (is_long && question_.chunks.empty()) continue;
      const double limit = choice.takes_limit ? memory_left : 0;
      jobs.push_back({&each, std::move(choice), limit});
    }
    return jobs;
  }

  // The memory that every rank has left for activations.
  double LeftIn(const TrainingPlan& plan) const {
    double left = std::numeric_limits<double>::infinity();
    for (std::size_t rank = 0; rank < plan.memory.size(); ++rank) {
      const PeakBytes& held = plan.estimate.ranks[rank];
      left = std::min(left, LimitOf(plan, rank) - (held.total() - held.activations));
    }
    return std::floor(left);
  }

  // Returns for each job whether its plans fit.
  std::vector<bool> Price(const std::vector<Job>& jobs) {
    std::vector<bool> fits(jobs.size(), true);
    std::vector<std::vector<TrainingPlan>> priced(jobs.size());
    std::vector<std::size_t> counts(jobs.size());
    OnAllCores(jobs.size(), [&](std::size_t i) {
      if (plans_.empty() || !question_.stop()) priced[i] = PriceOne(jobs[i], counts[i]);
    });
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      answer_.searched += counts[i];
      for (TrainingPlan& plan : priced[i]) {
        if (!least_bytes_ || plan.bytes() < least_bytes_->bytes()) least_bytes_ = plan;
        if (!Fits(plan)) {
          fits[i] = false;
        } else {
          Keep(std::move(plan));
        }
      }
    }
    return fits;
  }

  // Prices the even and the balanced split of the layers, or the one that the user fixed.
  std::vector<TrainingPlan> PriceOne(const Job& job, std::size_t& count) const {
    Scenario scenario = question_.scenario;
    const JobDivision& division = job.division->division;
    if (job.memory_limit > 0) scenario.memory_limit = fmt::format("{:.0f}B", job.memory_limit);
    std::vector<TrainingPlan> plans;
    for (std::vector<int>& layers : SplitsOf(*job.division, job.choice)) {
      ScheduleChoice choice = job.choice;
      choice.layers = std::move(layers);
      auto plan = PriceOf(scenario, division, choice, [&](const Schedule& schedule) {
        return Check(division, choice, &schedule);
      });
      if (!plan) continue;
      plan->framework = question_.framework.name;
      ++count;
      plans.push_back(*std::move(plan));
    }
    return plans;
  }

  std::vector<std::vector<int>> SplitsOf(const BoundedDivision& each,
                                         const ScheduleChoice& choice) const {
    const std::size_t layers = each.times.layers.size();
    const auto placement = PlacementOf(choice, each.division);
    if (question_.scenario.layout || !placement || placement->stages() == 1 || layers == 0) {
      return {{}};
    }
    const auto stages = Index(placement->chain_length());
    if (layers < stages) return {};
    std::vector<int> even(stages, static_cast<int>(layers / stages));
    for (std::size_t i = 0; i < layers % stages; ++i) ++even[i];
    std::vector<int> balanced = BalancedLayers(each.times.layers, *placement, each.times.ranks);
    if (even == balanced) return {even};
    if (choice.is_common || choice.searches) return {std::move(balanced)};
    return {std::move(balanced), std::move(even)};
  }

  void Keep(TrainingPlan plan) {
    fastest_ = std::min(fastest_, plan.step_time());
    plans_.push_back(plan);
    front_.push_back(std::move(plan));
    front_ = FrontOf(std::move(front_));
  }

  // The fastest plans, each of another division.
  std::vector<TrainingPlan> FastestOfDivisions(std::size_t count) const {
    std::vector<TrainingPlan> sorted = plans_;
    std::ranges::stable_sort(sorted, {}, &TrainingPlan::step_time);
    std::vector<TrainingPlan> fastest;
    for (TrainingPlan& plan : sorted) {
      if (fastest.size() == count) break;
      const bool is_new = std::ranges::none_of(
          fastest, [&](const TrainingPlan& each) { return each.division == plan.division; });
      if (is_new) fastest.push_back(std::move(plan));
    }
    return fastest;
  }

  void MoveLayers() {
    const std::vector<TrainingPlan> fastest = FastestOfDivisions(kSplit);
    for (std::size_t i = 0; i < fastest.size() && !Stopped(); ++i) {
      if (DivisionOf(fastest[i]).least.time >= fastest_) continue;
      TrainingPlan moved = WithBestSplit(
          fastest[i], [&](const TrainingPlan& plan) { return Fits(plan); }, answer_.searched);
      if (moved.step_time() < fastest[i].step_time()) Keep(std::move(moved));
      Progress(kSearchesDone, 1, i, fastest.size());
    }
  }

  // Prices the divisions with the lowest bounds on the memory, if none has been priced.
  void PriceLeast() {
    if (least_bytes_) return;
    std::vector<BoundedDivision> sorted = divisions_;
    std::ranges::stable_sort(sorted, {}, [](const BoundedDivision& e) { return e.least.bytes; });
    if (sorted.size() > kBatch) sorted.resize(kBatch);
    std::vector<BoundedDivision*> batch;
    for (BoundedDivision& each : sorted) batch.push_back(&each);
    Price(batch);
  }

  Result<PlanAnswer> Answer() {
    fits_nothing_ = plans_.empty();
    if (fits_nothing_) return tl::unexpected(Error());
    for (TrainingPlan& plan : front_) {
      if (plan.step_time() <= kSlowest * fastest_) answer_.front.push_back(std::move(plan));
    }
    answer_.best_of_divisions = FastestOfDivisions(kBestOfDivisions);
    AddRunnersUp();
    for (TrainingPlan& plan : answer_.front) AddBound(plan);
    for (std::vector<TrainingPlan>* plans : {&answer_.front, &answer_.runners_up}) {
      for (TrainingPlan& plan : *plans) {
        const auto parts = TimePartsOf(question_.scenario, plan.division);
        if (parts) plan.parts = *parts;
      }
    }
    answer_.lower_bound = divisions_.front().least.time;
    answer_.memory_limit = limit_;
    answer_.stopped = stopped_;
    return std::move(answer_);
  }

  // The fastest of each division among ranks that the front lacks.
  void AddRunnersUp() {
    std::ranges::stable_sort(plans_, {}, &TrainingPlan::step_time);
    const auto ranks_of = [](const TrainingPlan& plan) {
      const JobDivision& of = plan.division;
      return std::tuple(of.tensor, of.context, of.pipeline, of.expert, of.zero);
    };
    std::set<decltype(ranks_of(answer_.best()))> seen;
    for (const TrainingPlan& plan : answer_.front) seen.insert(ranks_of(plan));
    for (TrainingPlan& plan : plans_) {
      if (answer_.runners_up.size() == kRunnersUp) break;
      if (seen.insert(ranks_of(plan)).second) answer_.runners_up.push_back(std::move(plan));
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
  Precision precision_ = Precision::kBf16;
  Device device_;  // the first
  Result<ModelConfig> engine_model_ = ModelConfig();
  double limit_ = 0;
  std::optional<Error> refused_;  // why the first division has no price
  std::vector<BoundedDivision> divisions_;
  std::optional<TrainingPlan> least_bytes_;
  std::set<JobDivision> fits_whole_;  // without recomputation and offloading
  std::vector<TrainingPlan> plans_, front_;
  double fastest_ = std::numeric_limits<double>::infinity();
  bool stopped_ = false, fits_nothing_ = false;
  PlanAnswer answer_;
};

// Returns the better of the plans with moments in 8 bits and with states in the memory of the host,
// and the other's best among the runners-up. Empty if neither fits or the framework has neither.
std::optional<PlanAnswer> WithSmallerStates(const PlanQuestion& question) {
  if (!question.framework.options.saves_states) return std::nullopt;
  std::vector<PlanAnswer> answers;
  for (const Scenario& scenario : StateSavings(question.scenario)) {
    PlanQuestion changed = question;
    changed.scenario = scenario;
    if (auto answer = PlanSearch(changed).Run()) answers.push_back(*std::move(answer));
  }
  if (answers.empty()) return std::nullopt;
  std::ranges::stable_sort(answers, {}, [](const PlanAnswer& a) { return a.best().step_time(); });
  PlanAnswer best = std::move(answers.front());
  if (answers.size() > 1) best.runners_up.insert(best.runners_up.begin(), answers.back().best());
  return best;
}

}  // namespace

std::vector<Scenario> StateSavings(const Scenario& scenario) {
  std::vector<Scenario> changes;
  if (!scenario.optimizer_states) {
    changes.push_back(scenario);
    changes.back().optimizer_states = kMomentNames.back();
  }
  if (!scenario.offloaded_states) {
    changes.push_back(scenario);
    changes.back().offloaded_states = 1;
  }
  return changes;
}

Result<PlanAnswer> SearchPlans(const PlanQuestion& question) {
  PlanSearch search(question);
  auto answer = search.Run();
  if (answer || !search.fits_nothing()) return answer;
  if (auto saved = WithSmallerStates(question)) return *std::move(saved);
  return tl::unexpected(search.DoesNotFit());
}

std::optional<TrainingPlan> LeastMemoryPlan(const PlanQuestion& question) {
  return PlanSearch(question).LeastMemory();
}

}  // namespace penstock
