// The costs of ScheduleOptions that fit any number of stages: those of layers, or of a model.
#include <algorithm>

#include "cli/options/schedule_options.h"

namespace penstock {

Result<Costs> ScheduleOptions::CostsOfLayers(int stages, int replicas, int slices,
                                             const ScheduleParams& params) const {
  if (priced_model.given()) {
    PENSTOCK_TRY(const ModelOnCluster model, priced_model.Load());
    const int vocabulary_ranks = shards_vocabulary() ? params.ranks : 0;
    PENSTOCK_TRY(Costs costs, CostsOfChains(model, {stages, slices, vocabulary_ranks}, replicas));
    if (comm) {
      costs.comm = comm->value;
      costs.topology = {};
    }
    if (!topology.empty()) {
      PENSTOCK_TRY(costs.comm, LongestMessage(params.ranks, costs.message_bytes));
    }
    costs.overlap = params.overlap;
    return costs;
  }
  Costs costs;
  auto stages_costs = StagesOfLayers(layer_costs, stages, replicas, slices);
  if (!stages_costs) {
    return InvalidArgument("--layer-costs: {}", stages_costs.error().line());
  }
  costs.stages = std::move(*stages_costs);
  costs.comm = params.comm;
  costs.overlap = params.overlap;
  return costs;
}

bool ScheduleOptions::shards_vocabulary() const {
  return std::ranges::find(passes.passes, "vocabulary") != passes.passes.end();
}

Status ScheduleOptions::DescribeCosts(ChosenSchedule& chosen) const {
  if (time_unit) chosen.time_unit = *time_unit;
  if (!priced_model.given()) return {};
  if (chosen.schedule.vocabulary && !shards_vocabulary()) {
    return InvalidArgument(
        "{}: --model does not know the ranks of its sharded vocabulary; give the file without "
        "these actions and add --pass vocabulary",
        chosen.label);
  }
  PENSTOCK_TRY(const ModelOnCluster model, priced_model.Load());
  const Placement& placement = chosen.schedule.placement;
  PENSTOCK_TRY_STATUS(CheckRanks(model, placement.ranks()));
  PENSTOCK_TRY(const std::vector<double> states,
               StatesByRank(model, placement, shards_vocabulary()));
  chosen.time_unit = "s";
  chosen.about = DescribeModel(model, states);
  chosen.data = model.data;
  if (!memory_limit) {
    chosen.memory_limit = MemoryLeft(model, states);
    chosen.device_memory = model.cluster.device.memory;
  }
  return {};
}

Status ScheduleOptions::LimitByDevice(const Algorithm& algorithm, const ScheduleParams& checked,
                                      ScheduleParams& asked) const {
  if (!priced_model.given() || memory_limit || !algorithm.knobs.memory_limit) return {};
  PENSTOCK_TRY(const ModelOnCluster model, priced_model.Load());
  PENSTOCK_TRY(const std::vector<double> states,
               StatesByRank(model, PlacementOf(algorithm, checked), shards_vocabulary()));
  const double left = MemoryLeft(model, states);
  if (left == 0) {
    return InvalidArgument("{}: no memory is left for activations: {}", algorithm.name,
                           DescribeModel(model, states));
  }
  asked.memory_limit = left;
  asked.memory_unit = {"GiB", 0x1p-30};
  return {};
}

}  // namespace penstock
