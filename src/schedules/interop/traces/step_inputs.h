// What the actions of a recorded step read from other ranks. Private to interop/traces.
#pragma once

#include "base/index.h"
#include "interop/traces/one_step.h"
#include "schedule/compute_times.h"

namespace penstock {

struct StepInput {
  Span made;  // of the action that computes the input
  int from = 0;
  Span* read = nullptr;  // of the action that reads it
  int to = 0;
};

// Calls visit(const StepInput&) for each input of F, I and B that another rank computes.
template <class Visit>
void ForEachInput(OneStep& step, const Visit& visit) {
  const Placement& placement = step.schedule.placement;
  const ComputeTimes times(step.schedule, step.timeline);
  for (std::size_t rank = 0; rank < step.schedule.lanes.size(); ++rank) {
    for (std::size_t i = 0; i < step.schedule.lanes[rank].size(); ++i) {
      ForEachPart(step.schedule.lanes[rank][i], [&](const Part& part) {
        if (part.op == Op::kBackwardWeight) return;
        const bool forward = part.op == Op::kForward;
        const int stage = forward ? placement.previous(part.stage) : placement.next(part.stage);
        if (stage < 0 || placement.rank_of(stage) == static_cast<int>(rank)) return;
        const ValueKind kind = forward ? ValueKind::kActivation : ValueKind::kGradient;
        visit(StepInput{times.Of(kind, Index(stage), Index(part.microbatch)),
                        placement.rank_of(stage), &step.timeline.spans[rank][i],
                        static_cast<int>(rank)});
      });
    }
  }
}

}  // namespace penstock
