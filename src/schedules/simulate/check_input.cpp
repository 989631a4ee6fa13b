#include "simulate/check_input.h"

#include <algorithm>
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
  if (!costs.stages.empty() && costs.by_slice.size() % costs.stages.size() != 0) {
    return InvalidArgument("{} costs by slice for {} stages; give equally many for each stage",
                           costs.by_slice.size(), costs.stages.size());
  }
  const auto usable = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  for (const auto& [name, cost] :
       {std::pair("comm", costs.comm), std::pair("overlap", costs.overlap.factor),
        std::pair("offload", costs.offload), std::pair("reload", costs.reload),
        std::pair("exchange", costs.exchange)}) {
    if (!usable(cost)) return InvalidParameter(name, "{}: must be finite and at least 0", cost);
  }
  for (const std::vector<StageCosts>* list : {&costs.stages, &costs.by_slice}) {
    for (const StageCosts& stage : *list) {
      for (const StageCost& cost : kStageCosts) {
        const double value = stage.*cost.value;
        if (usable(cost.kind == CostKind::kMemoryChange ? std::abs(value) : value)) continue;
        return InvalidParameter(cost.name, "{}: must be finite and at least 0", value);
      }
    }
  }
  if (costs.offload_sharing < 1 || costs.offload_sharing > std::max(1, schedule.ranks())) {
    return InvalidParameter(
        "offload_sharing",
        "{}: that many ranks cannot share a link to the slower pool; give 1 to {}",
        costs.offload_sharing, schedule.ranks());
  }
  return CheckTopology(costs.topology, schedule.ranks());
}

}  // namespace penstock
