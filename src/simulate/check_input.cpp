#include "simulate/check_input.h"

#include <cmath>

#include "base/index.h"

namespace penstock {

Status CheckInput(const Schedule& schedule, const Costs& costs) {
  if (schedule.lanes.size() != Index(schedule.ranks())) {
    return InvalidArgument("{} lanes for {} ranks; give one lane per rank", schedule.lanes.size(),
                           schedule.ranks());
  }
  if (schedule.indices() < 0 || schedule.slices < 1) {
    return InvalidArgument("{} microbatches in {} slices: must be at least 0 and 1",
                           schedule.microbatches, schedule.slices);
  }
  if (costs.stages.size() != Index(schedule.stages())) {
    return InvalidArgument("costs of {} stages for a schedule of {}; give one entry per stage",
                           costs.stages.size(), schedule.stages());
  }
  const auto usable = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  bool sound = usable(costs.comm) && usable(costs.overlap.factor) && usable(costs.offload) &&
               usable(costs.reload) && usable(costs.exchange);
  for (const StageCosts& stage : costs.stages) {
    for (double StageCosts::*time : kTimesOfStage) sound = sound && usable(stage.*time);
    for (double StageCosts::*memory : kMemoryOfStage) sound = sound && usable(stage.*memory);
  }
  if (!sound) return InvalidArgument("a cost is negative or not finite; costs must be at least 0");
  return CheckTopology(costs.topology, schedule.ranks());
}

}  // namespace penstock
