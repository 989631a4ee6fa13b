#include "schedule/version_rule.h"

#include <algorithm>

namespace penstock {

VersionRule VersionRuleOf(const Schedule& schedule, int stage) {
  const Placement& placement = schedule.placement;
  switch (schedule.weights) {
    case WeightPolicy::kStashed:
      return {schedule.slices, placement.chain_length() - 1 - placement.model_stage(stage)};
    case WeightPolicy::kDoubleBuffered:
      return {schedule.indices() / std::max(1, schedule.steps), 1};
    case WeightPolicy::kFlush:
      break;
  }
  return {schedule.indices() / std::max(1, schedule.steps), 0};
}

}  // namespace penstock
