#include "cli/options/costs/stage_costs.h"

#include "base/index.h"

namespace penstock {

Status CheckStageCosts(const Algorithm& algorithm, ScheduleParams asked) {
  if (!asked.costs) return {};
  const std::size_t given = asked.costs->stages.size();
  asked.costs.reset();
  const auto checked = CheckParams(algorithm, asked);
  if (!checked) return {};  // refused again with the costs
  const auto stages = Index(checked->ranks) * Index(checked->chunks * algorithm.knobs.replicas);
  if (given == stages) return {};
  return InvalidArgument(
      "schedule {}: stage_costs has {} stages, not {}; give one entry per stage, or layer_costs, "
      "which fit any number",
      algorithm.name, given, stages);
}

}  // namespace penstock
