#include "plan/uncertainty/outlook.h"

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "base/system/on_all_cores.h"
#include "plan/search/pricing.h"
#include "scenario/price/simulated.h"

namespace penstock {
namespace {

// A knowledge that leaves more than this part of the regret settles nothing.
constexpr double kClearlyLess = 0.9;
// A smaller expected regret is not worth a measurement.
constexpr double kLeastRegret = 5e-4;

bool IsSame(const TrainingPlan& a, const TrainingPlan& b) {
  return a.division == b.division && a.schedule == b.schedule && a.chunks == b.chunks &&
         a.slices == b.slices && a.layers == b.layers;
}

// A plan with its schedule, which prices do not change.
class PricedPlan {
 public:
  static Result<PricedPlan> Of(const TrainingPlan& plan) {
    PENSTOCK_TRY(Scenario own, ScenarioOf(plan.scenario, plan.scenario.schedules.front()));
    PENSTOCK_TRY(PricedSchedule built, BuildPlan(plan));
    return PricedPlan(std::move(own), std::move(built.schedule));
  }

  Result<double> StepTime(const SpeedFactors& factors) const {
    Scenario scenario = scenario_;
    scenario.speed_factors = factors;
    PENSTOCK_TRY(PricedSchedule priced, Price(scenario, schedule_));
    PENSTOCK_TRY(const Simulated simulated, SimulateOne(std::move(priced), false));
    return simulated.step.value().step_time;
  }

 private:
  PricedPlan(Scenario scenario, Schedule schedule)
      : scenario_(std::move(scenario)), schedule_(std::move(schedule)) {}

  Scenario scenario_;
  Schedule schedule_;
};

Result<std::vector<PricedPlan>> WithSchedules(const std::vector<TrainingPlan>& plans) {
  std::vector<std::optional<Result<PricedPlan>>> built(plans.size());
  OnAllCores(plans.size(), [&](std::size_t i) { built[i] = PricedPlan::Of(plans[i]); });
  std::vector<PricedPlan> all;
  for (std::optional<Result<PricedPlan>>& each : built) {
    PENSTOCK_TRY(PricedPlan plan, *std::move(each));
    all.push_back(std::move(plan));
  }
  return all;
}

// Prices all plans with each sample of the constants, on all cores.
class Sampling {
 public:
  Sampling(const std::vector<PricedPlan>& plans, const OutlookQuestion& question)
      : plans_(plans), question_(question) {}

  // Returns the times of all samples; empty if stop() ended it.
  Result<SampledTimes> Run() {
    SampledTimes times(question_.samples);
    OnAllCores(question_.samples, [&](std::size_t sample) {
      if (question_.stop()) stopped_ = true;
      if (!stopped_) times[sample] = TimesOf(sample);
      const MutexLock lock(mutex_);
      question_.progress(static_cast<double>(++done_) / static_cast<double>(question_.samples));
    });
    if (error_) return tl::unexpected(*std::move(error_));
    if (stopped_) return SampledTimes();
    return times;
  }

 private:
  std::vector<double> TimesOf(std::size_t sample) {
    const SpeedFactors factors = FactorsOf(question_.constants, question_.seed, sample);
    std::vector<double> times;
    for (const PricedPlan& plan : plans_) {
      auto time = plan.StepTime(factors);
      if (!time) {
        const MutexLock lock(mutex_);
        error_ = std::move(time).error();
        stopped_ = true;
        return {};
      }
      times.push_back(*time);
    }
    return times;
  }

  const std::vector<PricedPlan>& plans_;
  const OutlookQuestion& question_;
  std::atomic<bool> stopped_{false};
  Mutex mutex_;
  std::size_t done_ = 0;
  std::optional<Error> error_;
};

// Returns the factor of a constant in each sample.
std::vector<double> ValuesOf(const OutlookQuestion& question, const UncertainConstant& constant) {
  std::vector<double> values;
  for (std::size_t sample = 0; sample < question.samples; ++sample) {
    const SpeedFactors factors = FactorsOf(question.constants, question.seed, sample);
    values.push_back(factors.*constant.factors.front());
  }
  return values;
}

bool WinsMoreOften(const Outlook::Candidate& a, const Outlook::Candidate& b) {
  if (a.regret.wins != b.regret.wins) return a.regret.wins > b.regret.wins;
  return a.regret.expected < b.regret.expected;
}

}  // namespace

const Outlook::Candidate& Outlook::safest() const {
  return *std::ranges::min_element(candidates, {},
                                   [](const Candidate& each) { return each.regret.expected; });
}

const Outlook::Constant* Outlook::decisive() const {
  const double regret = safest().regret.expected;
  if (constants.empty() || regret < kLeastRegret) return nullptr;
  const Constant& first = constants.front();
  return first.regret_left <= kClearlyLess * regret ? &first : nullptr;
}

std::vector<TrainingPlan> CandidatesOf(const PlanAnswer& answer) {
  std::vector<TrainingPlan> candidates;
  for (const std::vector<TrainingPlan>* plans :
       {&answer.front, &answer.runners_up, &answer.best_of_divisions}) {
    for (const TrainingPlan& plan : *plans) {
      const bool is_new = std::ranges::none_of(
          candidates, [&](const TrainingPlan& each) { return IsSame(each, plan); });
      if (is_new) candidates.push_back(plan);
    }
  }
  return candidates;
}

Result<std::optional<Outlook>> OutlookOf(const PlanAnswer& answer,
                                         const OutlookQuestion& question) {
  const std::vector<TrainingPlan> plans = CandidatesOf(answer);
  PENSTOCK_TRY(const std::vector<PricedPlan> priced, WithSchedules(plans));
  PENSTOCK_TRY(const SampledTimes times, Sampling(priced, question).Run());
  if (times.empty()) return std::nullopt;
  Outlook outlook{.samples = question.samples, .seed = question.seed};
  const std::vector<CandidateRegret> regrets = RegretsOf(times);
  for (std::size_t i = 0; i < plans.size(); ++i) {
    outlook.candidates.push_back({plans[i], regrets[i]});
  }
  std::stable_sort(outlook.candidates.begin() + 1, outlook.candidates.end(), WinsMoreOften);
  for (const UncertainConstant& constant : question.constants) {
    if (constant.factors.empty() || constant.error == 0) continue;
    outlook.constants.push_back({constant, RegretLeft(times, ValuesOf(question, constant))});
  }
  std::ranges::stable_sort(outlook.constants, {}, &Outlook::Constant::regret_left);
  return outlook;
}

}  // namespace penstock
