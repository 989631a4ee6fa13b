#include "simulate/memory/kept_versions.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/version_rule.h"

namespace penstock {
std::vector<VersionChange> VersionChanges(const Schedule& schedule, int stage) {
  if (schedule.weights == WeightPolicy::kFlush) return {};
  const VersionRule rule = VersionRuleOf(schedule, stage);
  std::vector<char> ended(Index(schedule.indices()));
  std::size_t first_open = 0;  // the lowest index whose backward has not ended
  int steps = 0;
  // Versions between the newest and the one that the first open index reads.
  const auto kept = [&] {
    if (first_open == ended.size()) return 0;
    const auto oldest = static_cast<int>(rule.VersionOf(static_cast<int>(first_open)));
    return std::max(0, steps - oldest);
  };
  std::vector<VersionChange> changes = {{VersionChange::kFirst, kept()}};
  int before = kept();
  const Lane& lane = schedule.lanes[Index(schedule.placement.rank_of(stage))];
  for (std::size_t i = 0; i < lane.size(); ++i) {
    ForEachPart(lane[i], [&](const Part& part) {
      if (part.stage != stage) return;
      if (part.op == Op::kStep) ++steps;
      if (EndsMicrobatch(schedule.backward_of(stage), part.op)) ended[Index(part.microbatch)] = 1;
    });
    while (first_open < ended.size() && ended[first_open] != 0) ++first_open;
    if (kept() == before) continue;
    changes.push_back({static_cast<int>(i), kept() - before});
    before = kept();
  }
  return changes;
}

}  // namespace penstock
