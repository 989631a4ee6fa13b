#include "scenario/sweep/plan.h"

#include <algorithm>

#include "base/text/quote.h"
#include "scenario/candidates.h"
#include "scenario/fields.h"
#include "scenario/own_fields.h"
#include "scenario/price/params.h"
#include "scenario/price/unused_fields.h"
#include "scenario/sweep_axes.h"

namespace penstock {
namespace {

constexpr std::size_t kMostCombinations = 1'000'000;

// Replaces "all" by the algorithms.
std::vector<std::string> NamesOf(const SweepAxis& axis) {
  std::vector<std::string> names;
  for (const std::string& value : axis.values) {
    if (value != kAllSchedules) {
      names.push_back(value);
      continue;
    }
    for (const Algorithm& algorithm : Catalog()) names.emplace_back(algorithm.name);
  }
  return names;
}

// The error as part of another one, in which its parameter is only mentioned.
std::string WithMention(Error error) {
  if (!error.parameter.empty()) error.parameter = "`" + error.parameter + "`";
  return error.line();
}

bool Sets(const FieldTexts& options, const std::string& key) {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.first == key; });
}

}  // namespace

Result<SweepPlan> SweepPlan::Of(const Scenario& scenario) {
  SweepPlan plan;
  plan.scenario_ = scenario;
  plan.scenario_.sweep.clear();
  plan.axes_ = scenario.sweep;
  plan.schedules_ = scenario.schedules;
  PENSTOCK_TRY_STATUS(plan.FindSchedules());
  PENSTOCK_TRY_STATUS(plan.CheckKeys());
  PENSTOCK_TRY_STATUS(plan.CheckValues());
  PENSTOCK_TRY_STATUS(plan.Count());
  plan.scenario_.schedules = plan.schedules_;
  PENSTOCK_TRY_STATUS(RefuseUnused(plan.WithJitter(), kSweepPurpose));
  plan.scenario_.schedules.clear();  // each combination copies what is left
  return plan;
}

Scenario SweepPlan::WithJitter() const {
  Scenario scenario = scenario_;
  for (const SweepAxis& axis : axes_) {
    if (axis.key == "jitter") scenario.jitter = axis.values.front();
  }
  return scenario;
}

Status SweepPlan::FindSchedules() {
  const auto axis = std::ranges::find(axes_, kScheduleAxis, &SweepAxis::key);
  if (axis == axes_.end()) {
    if (!schedules_.empty()) return {};
    return InvalidParameter("sweep", "varies no schedule: name one, or add {}={} or {}=NAME,NAME",
                            kScheduleAxis, kAllSchedules, kScheduleAxis);
  }
  if (!schedules_.empty()) {
    return InvalidParameter("sweep", "has {}, so {} cannot be given as well; leave one of them out",
                            kScheduleAxis, Quote(schedules_.front().label()));
  }
  PENSTOCK_TRY(ReadWords read, ReadCandidates(NamesOf(*axis)));
  if (!read.config.empty()) {
    return InvalidParameter("sweep", "{}={}: a configuration is no schedule", kScheduleAxis,
                            read.config);
  }
  schedules_ = std::move(read.candidates);
  axes_.erase(axis);
  return {};
}

Status SweepPlan::CheckKeys() const {
  for (const SweepAxis& axis : axes_) {
    if (IsGiven(*FindField(axis.key), scenario_)) {
      return InvalidParameter(axis.key, "is given, but `sweep` varies it; leave one of them out");
    }
    for (const Candidate& schedule : schedules_) {
      if (!Sets(schedule.options, axis.key)) continue;
      return InvalidArgument("{} sets {}, but `sweep` varies it; leave one of them out",
                             Quote(schedule.label()), axis.key);
    }
  }
  return {};
}

Status SweepPlan::CheckValues() const {
  // The unit of a limit may need a size that is swept as well, and a model's fields a model.
  const auto varies = [&](std::string_view key) {
    return std::ranges::find(axes_, key, &SweepAxis::key) != axes_.end();
  };
  for (const SweepAxis& axis : axes_) {
    for (const std::string& value : axis.values) {
      Scenario scenario = scenario_;
      const Status applied = ApplyOwnFields({{axis.key, value}}, scenario);
      if (!applied) return InvalidParameter("sweep", ": {}", WithMention(applied.error()));
      if (varies("activation_bytes")) scenario.memory_limit.reset();
      // Divisions of a model depend on each other, so each combination checks its own.
      if (FindField(axis.key)->group == FieldGroup::kModel) continue;
      const auto params = ParamsOf(scenario);
      if (!params) return InvalidParameter("sweep", ": {}", WithMention(params.error()));
    }
  }
  return {};
}

Status SweepPlan::Count() {
  size_ = schedules_.size();
  strides_.resize(axes_.size());
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    strides_[axis] = size_;
    if (axes_[axis].values.size() > kMostCombinations / size_) {
      return InvalidParameter("sweep", "has more than {} combinations; give fewer values",
                              kMostCombinations);
    }
    size_ *= axes_[axis].values.size();
  }
  return {};
}

std::size_t SweepPlan::ValueOf(std::size_t combination, std::size_t axis) const {
  return combination / strides_[axis] % axes_[axis].values.size();
}

Candidate SweepPlan::At(std::size_t combination) const {
  Candidate candidate = schedules_[ScheduleOf(combination)];
  candidate.written = candidate.label();
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    candidate.options.emplace_back(axes_[axis].key, axes_[axis].values[ValueOf(combination, axis)]);
  }
  return candidate;
}

std::size_t SweepPlan::GroupOf(std::size_t combination) const {
  return schedules_.size() > 1 ? combination / schedules_.size() : 0;
}

}  // namespace penstock
