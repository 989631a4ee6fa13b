// How the memory of a rank changes when an action starts and ends, by the simulator's rule. Private
// to simulate/.
#pragma once

#include "schedule/costs.h"
#include "simulate/memory/holdings.h"

namespace penstock {

enum class ActionMemory { kActivations, kGathered };
enum class ActionPoint { kStart, kEnd };

// Calls change(ActionMemory, ActionPoint, amount) for each change; amounts that are freed are
// negative. F allocates its activation at its start. I frees at its end what W does not read; W or
// B frees the rest at its end. OFFLOAD frees at its end and RELOAD allocates at its start. S
// allocates its softmax at its start, and T frees it at its end. A microbatch that is recomputed
// holds only its input until RECOMPUTE. Unsharded weights exist from UNSHARD's start to RESHARD.
template <class Change>
void ForEachMemoryChange(const Action& action, const Holdings& holdings, const Costs& costs,
                         const Change& change) {
  ForEachPart(action, [&](const Part& part) {
    if (part.stage >= costs.stages.size()) return;
    switch (part.op) {
      case Op::kForward:
      case Op::kReload:
        change(ActionMemory::kActivations, ActionPoint::kStart, holdings.Kept(part));
        break;
      case Op::kVocabularyInput:
        change(ActionMemory::kActivations, ActionPoint::kStart, costs.Of(part).softmax);
        break;
      case Op::kOffload:
        change(ActionMemory::kActivations, ActionPoint::kEnd, -holdings.Kept(part));
        break;
      case Op::kRecompute:
        change(ActionMemory::kActivations, ActionPoint::kStart, holdings.Recomputed(part));
        break;
      case Op::kUnshard:
        change(ActionMemory::kGathered, ActionPoint::kStart, costs.stages[part.stage].gathered);
        break;
      case Op::kReshard:
        change(ActionMemory::kGathered, ActionPoint::kEnd, -costs.stages[part.stage].gathered);
        break;
      default:
        change(ActionMemory::kActivations, ActionPoint::kEnd, -holdings.Freed(part));
        break;
    }
  });
}

}  // namespace penstock
