#include "simulate/memory/memory_over_time.h"

#include <algorithm>

#include "simulate/memory/holdings.h"
#include "simulate/memory/memory_changes.h"

namespace penstock {
namespace {

// Adds `change` at `time`. Merges simultaneous changes into one point.
void AddChange(MemoryCurve& curve, double time, double change) {
  if (change == 0) return;
  const double held = curve.back().amount;
  if (curve.back().time == time) {
    curve.back().amount = held + change;
  } else {
    curve.push_back({time, held + change});
  }
}

struct Change {
  double time = 0;
  double amount = 0;
};

// The memory that one action allocates at its start and frees at its end.
struct Changes {
  Change at_start, at_end;
};

Changes ChangesOf(const Action& action, const Span& span, const Holdings& holdings,
                  const Costs& costs) {
  Changes changes{{span.start, 0}, {span.end, 0}};
  ForEachMemoryChange(action, holdings, costs, [&](ActionMemory, ActionPoint point, double amount) {
    (point == ActionPoint::kStart ? changes.at_start : changes.at_end).amount += amount;
  });
  return changes;
}

MemoryCurve CurveOf(const Lane& lane, const std::vector<Span>& spans, const Holdings& holdings,
                    const Costs& costs) {
  std::vector<Change> changes;
  changes.reserve(2 * lane.size());
  bool ordered = true;  // transfers that run concurrently may end after later actions
  const auto add = [&](const Change& change) {
    if (change.amount == 0) return;
    ordered = ordered && (changes.empty() || changes.back().time <= change.time);
    changes.push_back(change);
  };
  for (std::size_t i = 0; i < lane.size(); ++i) {
    const Changes action = ChangesOf(lane[i], spans[i], holdings, costs);
    add(action.at_start);
    add(action.at_end);
  }
  if (!ordered) {
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.time < b.time; });
  }
  MemoryCurve curve = {{0, 0}};
  for (const Change& change : changes) AddChange(curve, change.time, change.amount);
  return curve;
}

MemoryCurve RankCurve(const Schedule& schedule, const Timeline& timeline, const Holdings& holdings,
                      const Costs& costs, int rank) {
  const Lane& lane = schedule.lanes[rank];
  const std::vector<Span>& spans = timeline.spans[rank];
  PENSTOCK_CHECK(lane.size() == spans.size(), "rank {}: {} actions, {} spans", rank, lane.size(),
                 spans.size());
  return CurveOf(lane, spans, holdings, costs);
}

}  // namespace

double PeakOf(const MemoryCurve& curve) {
  double peak = 0;
  for (const MemoryPoint& point : curve) peak = std::max(peak, point.amount);
  return peak;
}

MemoryCurve MemoryOverTime(const Schedule& schedule, const Timeline& timeline, const Costs& costs,
                           int rank) {
  return RankCurve(schedule, timeline, Holdings(schedule, costs), costs, rank);
}

std::vector<MemoryCurve> MemoryOverTime(const Schedule& schedule, const Timeline& timeline,
                                        const Costs& costs) {
  const Holdings holdings(schedule, costs);
  std::vector<MemoryCurve> curves;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    curves.push_back(RankCurve(schedule, timeline, holdings, costs, rank));
  }
  return curves;
}

}  // namespace penstock
