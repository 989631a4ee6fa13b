#include "scenario/price/model.h"

#include <algorithm>

#include "base/index.h"
#include "base/units.h"

namespace penstock {
namespace {

std::string InBytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

// The rank whose states leave the least memory.
int FullestRank(const ModelOnCluster& model, const std::vector<double>& states) {
  int fullest = 0;
  for (int rank = 1; rank < static_cast<int>(states.size()); ++rank) {
    const double left = model.MemoryOf(rank) - states[Index(rank)];
    if (left < model.MemoryOf(fullest) - states[Index(fullest)]) fullest = rank;
  }
  return fullest;
}

}  // namespace

Result<std::vector<double>> StatesByRank(const ModelOnCluster& model, const Placement& placement,
                                         bool shards_vocabulary) {
  PipelineDivision division{.stages = placement.chain_length()};
  if (shards_vocabulary) division.vocabulary_ranks = placement.ranks();
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, division));
  std::vector<double> states;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double bytes = 0;
    for (const int stage : placement.stages_of(rank)) {
      bytes += costs.states[Index(placement.model_stage(stage))].total();
    }
    states.push_back(bytes);
  }
  return states;
}

double MemoryLeft(const ModelOnCluster& model, const std::vector<double>& states) {
  const int fullest = FullestRank(model, states);
  return std::max(0.0, model.MemoryOf(fullest) - states[Index(fullest)]);
}

Placement PlacementOf(const Algorithm& algorithm, const ScheduleParams& params) {
  switch (algorithm.placement) {
    case PlacementForm::kLooped:
      return Placement::Looped(params.ranks, params.chunks);
    case PlacementForm::kVee:
    case PlacementForm::kZigzag:
      return Placement::Zigzag(params.ranks, params.chunks);
    case PlacementForm::kBidirectional:
      return Placement::Bidirectional(params.ranks);
    case PlacementForm::kLinear:
    case PlacementForm::kOther:
      break;
  }
  return Placement::Looped(params.ranks, params.chunks);
}

std::string DescribeModel(const ModelOnCluster& model, const std::vector<double>& states) {
  const int fullest = FullestRank(model, states);
  const double memory = model.MemoryOf(fullest), largest = states[Index(fullest)];
  std::string text = fmt::format(
      "weights, gradients and optimizer state of {} take up to {} of the {} of a device ({})",
      model.shape.name, InBytes(largest), InBytes(memory), model.DeviceOf(fullest).name);
  if (largest > memory) text += ": add devices, or set `tensor`, `expert` or `zero`";
  return text;
}

}  // namespace penstock
