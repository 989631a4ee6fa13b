#include "schedule/costs.h"

#include <algorithm>
#include <limits>

namespace penstock {
Costs Costs::Uniform(const Placement& placement, int slices, double f, double i, double w,
                     double comm, double kept_for_weight) {
  const double share = static_cast<double>(placement.chunks()) * slices;
  StageCosts stage{f / share, i / share, w / share, 1 / share, kept_for_weight / share};
  stage.recompute = stage.forward;
  Costs costs;
  costs.stages.assign(placement.stages(), stage);
  costs.comm = comm;
  return costs;
}

double Costs::LargestMessage() const {
  double largest = 0;
  for (const StageCosts& stage : stages) largest = std::max(largest, stage.message_scale);
  return message_bytes * largest;
}

void Costs::ScaleTimes(double factor) {
  ForEachStage([factor](StageCosts& stage) {
    for (const StageCost& cost : kStageCosts) {
      if (cost.kind == CostKind::kTime) stage.*cost.value *= factor;
    }
  });
  for (double* time : {&comm, &exchange, &offload, &reload}) *time *= factor;
  for (double& time : comm_by_level) time *= factor;
  for (LinkLevel& level : topology.levels) {
    level.latency *= factor;
    level.bandwidth /= factor;
  }
}

void Costs::ScaleMemory(double factor) {
  ForEachStage([factor](StageCosts& stage) {
    for (const StageCost& cost : kStageCosts) {
      if (cost.is_memory()) stage.*cost.value *= factor;
    }
  });
  for (double* time : {&offload, &reload}) *time /= factor;
}

double Costs::SmallestMessage() const {
  double smallest = std::numeric_limits<double>::infinity();
  for (const StageCosts& stage : stages) smallest = std::min(smallest, stage.message_scale);
  double length = 1;
  for (const StageCosts& part : by_slice) length = std::min(length, part.length);
  return stages.empty() ? 0 : message_bytes * smallest * length;
}

void Costs::SetCommByLevel(double bytes) {
  comm_by_level.clear();
  if (topology.levels.size() < 2) return;
  for (const LinkLevel& level : topology.levels) {
    comm_by_level.push_back(level.latency + (level.bandwidth > 0 ? bytes / level.bandwidth : 0));
  }
}

}  // namespace penstock
