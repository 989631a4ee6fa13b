#include "simulate/memory/working_peak.h"

#include "base/index.h"
#include "simulate/memory/holdings.h"
#include "simulate/memory/memory_changes.h"

namespace penstock {
namespace {

double WorkspaceOf(const Action& action, const Costs& costs) {
  double workspace = 0;
  ForEachPart(action, [&](const Part& part) {
    if (part.stage >= costs.stages.size()) return;
    if (IsCompute(part.op) || part.op == Op::kRecompute) workspace += costs.Of(part).workspace;
  });
  return workspace;
}

}  // namespace

WorkingPeak WorkingPeakOf(const Schedule& schedule, const Costs& costs, int rank) {
  const Holdings holdings(schedule, costs);
  WorkingPeak peak;
  double held = 0;
  for (const Action& action : schedule.lanes[Index(rank)]) {
    double freed = 0;
    ForEachMemoryChange(action, holdings, costs,
                        [&](ActionMemory, ActionPoint point, double amount) {
                          (point == ActionPoint::kStart ? held : freed) += amount;
                        });
    const WorkingPeak during{held, WorkspaceOf(action, costs)};
    if (during.total() > peak.total()) peak = during;
    held += freed;
  }
  return peak;
}

}  // namespace penstock
