#include "cli/sweep/plan.h"

#include <algorithm>

#include "base/text/quote.h"
#include "cli/options/option_effects.h"

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

bool Sets(const CandidateOptions& options, const std::string& key) {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.first == key; });
}

}  // namespace

Result<SweepPlan> SweepPlan::Of(const ScheduleOptions& options) {
  SweepPlan plan;
  plan.options_ = options;
  plan.axes_ = options.sweep;
  PENSTOCK_TRY_STATUS(plan.FindSchedules(options));
  plan.options_.sweep.clear();
  PENSTOCK_TRY_STATUS(plan.CheckKeys());
  PENSTOCK_TRY_STATUS(plan.CheckValues());
  PENSTOCK_TRY_STATUS(plan.Count());
  plan.options_.candidates = plan.schedules_;
  PENSTOCK_TRY_STATUS(RefuseUnread(plan.WithJitter()));
  // Each combination copies what is left.
  for (auto* const words : {&plan.options_.words, &plan.options_.schedules, &plan.options_.csv}) {
    words->clear();
  }
  plan.options_.candidates.clear();
  return plan;
}

ScheduleOptions SweepPlan::WithJitter() const {
  ScheduleOptions options = options_;
  for (const SweepAxis& axis : axes_) {
    if (axis.key == "jitter") options.jitter = axis.values.front();
  }
  return options;
}

Status SweepPlan::FindSchedules(const ScheduleOptions& options) {
  schedules_ = options.candidates;
  const auto axis = std::find_if(axes_.begin(), axes_.end(),
                                 [](const SweepAxis& each) { return each.key == kScheduleAxis; });
  if (axis == axes_.end()) {
    if (!schedules_.empty()) return {};
    return InvalidArgument("--sweep varies no schedule: name one, or add {}={} or {}=NAME,NAME",
                           kScheduleAxis, kAllSchedules, kScheduleAxis);
  }
  if (!schedules_.empty()) {
    return InvalidArgument("--sweep has {}, so {} cannot be given as well; leave one of them out",
                           kScheduleAxis, Quote(schedules_.front().label()));
  }
  PENSTOCK_TRY(ReadWords read, ReadCandidates(NamesOf(*axis)));
  if (!read.config.empty()) {
    return InvalidArgument("--sweep {}={}: a configuration is no schedule", kScheduleAxis,
                           read.config);
  }
  schedules_ = std::move(read.candidates);
  axes_.erase(axis);
  return {};
}

Status SweepPlan::CheckKeys() const {
  const std::vector<std::string> given = GivenOptions(options_);
  for (const SweepAxis& axis : axes_) {
    const std::string option = OptionOf(axis.key);
    if (std::find(given.begin(), given.end(), option) != given.end()) {
      return InvalidArgument("{} is given, but --sweep varies it; leave one of them out", option);
    }
    for (const Candidate& schedule : schedules_) {
      if (!Sets(schedule.options, axis.key)) continue;
      return InvalidArgument("{} sets {}, but --sweep varies it; leave one of them out",
                             Quote(schedule.label()), axis.key);
    }
  }
  return {};
}

Status SweepPlan::CheckValues() const {
  // The unit of a limit may need a size that is swept as well.
  const bool sizes_vary = std::any_of(axes_.begin(), axes_.end(), [](const SweepAxis& axis) {
    return axis.key == "activation_bytes";
  });
  for (const SweepAxis& axis : axes_) {
    for (const std::string& value : axis.values) {
      ScheduleOptions options = options_;
      const Status applied = ApplyCandidateOptions({{axis.key, value}}, options);
      if (!applied) return InvalidArgument("--sweep {}", applied.error().line());
      if (sizes_vary) options.memory_limit.reset();
      const auto params = options.Params();
      if (!params) return InvalidArgument("--sweep: {}", params.error().line());
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
      return InvalidArgument("--sweep has more than {} combinations; give fewer values",
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
