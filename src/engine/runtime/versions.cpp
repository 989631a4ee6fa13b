#include "runtime/versions.h"

#include <algorithm>

#include "schedule/deps.h"
#include "schedule/text/text.h"

namespace penstock {
Result<StageVersions> VersionsOf(const Schedule& schedule, int stage) {
  StageVersions rule{VersionRuleOf(schedule, stage)};
  if (schedule.weights == WeightPolicy::kFlush && schedule.steps == 1) return rule;
  if (!HasGradients(schedule.backward_of(stage))) return rule;  // one version for ever
  const int rank = schedule.placement.rank_of(stage);
  int steps = 0;
  for (const Action& action : schedule.lanes[rank]) {
    ForEachPart(action, [&](const Part& part) {
      if (part.stage != stage || part.op == Op::kStep) return;
      // As in the middle of a run, where older versions exist for every microbatch.
      if (IsCompute(part.op)) {
        rule.older =
            std::max(rule.older, steps - static_cast<int>(rule.VersionOf(part.microbatch)));
      }
    });
    if (action.first.op == Op::kStep && action.first.stage == stage) ++steps;
    Status early;
    ForEachPart(action, [&](const Part& part) {
      if (part.stage != stage || !AddsGradients(schedule.backward_of(stage), part.op)) return;
      if (part.microbatch / rule.microbatches_per_update == steps) return;
      early = InvalidArgument(
          "rank {}: {} is {} STEP {} of its stage: the runtime accumulates gradients of one update "
          "at a time",
          rank, ToText(part),
          part.microbatch / rule.microbatches_per_update > steps ? "before" : "after",
          std::min(steps, part.microbatch / rule.microbatches_per_update));
    });
    PENSTOCK_TRY_STATUS(early);
  }
  if (steps * rule.microbatches_per_update != schedule.indices()) {
    return InvalidArgument(
        "rank {}: stage {} has {} STEPs, but needs {} because the schedule does not flush", rank,
        stage, steps, schedule.indices() / rule.microbatches_per_update);
  }
  return rule;
}

}  // namespace penstock
