// Why ranks are idle: each gap between a rank's actions, what it waits for, and the cause.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "explain/inputs.h"
#include "schedule/costs.h"

namespace penstock {

enum class BubbleCause {
  kWarmUp,         // before the rank's first backward: the pipeline fills
  kDrain,          // after its last forward: the pipeline drains
  kCommunication,  // what it waits for is computed and on its way
  kTransfer,       // it waits for its own RELOAD, UNSHARD, REDUCE_GRAD or SEND, also at its end
  kImbalance,      // it waits for another rank's action in between
  kMemoryLimit,    // a forward is ready, but its activations do not fit
};
inline constexpr std::size_t kBubbleCauses = 6;

// "warm-up", "drain", "communication", "transfer", "imbalance", "memory limit"
std::string_view NameOf(BubbleCause cause);

// A time in which a rank runs no action that occupies it. A gap may consist of several.
struct Bubble {
  double start = 0;
  double end = 0;
  BubbleCause cause = BubbleCause::kImbalance;
  ActionAt before;     // the action that follows; unknown at the end of the lane
  ActionAt waits_for;  // the action whose result comes last; unknown if there is none
};

// The limit that memory must not exceed, which distinguishes kMemoryLimit from other causes.
struct MemoryBound {
  const Costs& costs;
  double limit = 0;  // per rank, in the unit of the costs
};

// Returns the bubbles of each rank in order of time, from time 0 to the end of the last action of
// any rank. They add up to the time that the rank is idle. Bubbles shorter than a
// billionth of the timeline are left out.
std::vector<std::vector<Bubble>> FindBubbles(const Schedule& schedule, const Timeline& timeline,
                                             const ActionInputs& inputs,
                                             const std::optional<MemoryBound>& bound = {});

// The time of these bubbles, of one rank or of all, by cause.
using TimeByCause = std::array<double, kBubbleCauses>;
TimeByCause TotalsOf(const std::vector<Bubble>& bubbles);
TimeByCause TotalsOf(const std::vector<std::vector<Bubble>>& by_rank);

}  // namespace penstock
