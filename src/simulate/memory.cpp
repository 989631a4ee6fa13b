#include "simulate/memory.h"

namespace penstock {
namespace {

// Adds `change` at `time`, joining what happens at one time into one point.
void AddChange(MemoryCurve& curve, double time, double change) {
  if (change == 0) return;
  const double held = curve.back().amount;
  if (curve.back().time == time) {
    curve.back().amount = held + change;
  } else {
    curve.push_back({time, held + change});
  }
}

double Freed(const StageCosts& stage, Op op) {
  switch (op) {
    case Op::kBackward:
      return stage.activation;
    case Op::kBackwardInput:
      return stage.activation - stage.activation_after_i;
    case Op::kBackwardWeight:
      return stage.activation_after_i;
    default:
      return 0;
  }
}

}  // namespace

MemoryCurve MemoryOverTime(const Schedule& schedule, const Timeline& timeline, const Costs& costs,
                           int rank) {
  const Lane& lane = schedule.lanes[static_cast<std::size_t>(rank)];
  const std::vector<Span>& spans = timeline.spans[static_cast<std::size_t>(rank)];
  PENSTOCK_CHECK(lane.size() == spans.size(), "rank {}: {} actions, {} spans", rank, lane.size(),
                 spans.size());
  MemoryCurve curve = {{0, 0}};
  for (std::size_t i = 0; i < lane.size(); ++i) {
    double taken = 0;
    double freed = 0;
    ForEachPart(lane[i], [&](const Part& part) {
      if (part.stage >= costs.stages.size()) return;
      const StageCosts& stage = costs.stages[part.stage];
      if (part.op == Op::kForward) taken += stage.activation;
      freed += Freed(stage, part.op);
    });
    AddChange(curve, spans[i].start, taken);
    AddChange(curve, spans[i].end, -freed);
  }
  return curve;
}

std::vector<MemoryCurve> MemoryOverTime(const Schedule& schedule, const Timeline& timeline,
                                        const Costs& costs) {
  std::vector<MemoryCurve> curves;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    curves.push_back(MemoryOverTime(schedule, timeline, costs, rank));
  }
  return curves;
}

}  // namespace penstock
