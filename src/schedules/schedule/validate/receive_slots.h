// Receive slots: which of its rank's fixed buffers each RECV writes to.
//
// With fixed buffers a step needs no allocation, and a graph of it can be replayed. A RECV occupies
// its slot until the last action that reads the message has run: the W or B of its microbatch,
// since weight gradients are computed from the input and from the gradient of the output.
// Activations and gradients have slots of their own, as they may differ in size.
#pragma once

#include <array>
#include <vector>

#include "base/result.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"

namespace penstock {

struct ReceiveSlots {
  static constexpr int kNone = -1;

  std::vector<std::vector<int>> slots;    // by rank and action: the slot of a RECV, else kNone
  std::vector<std::array<int, 2>> count;  // by rank and ValueKind: slots from 0 on
};

// Returns the fewest slots on every rank: as many as RECVs occupy at once. The lanes decide alone,
// so all runs agree. Requires: the schedule is valid. Without RECVs there are no slots.
ReceiveSlots AssignReceiveSlots(const Schedule& schedule);

// Refuses slots of which two RECVs occupy one at the same time, and slots that do not exist. The
// error names the rank, the position and the action.
Status CheckReceiveSlots(const Schedule& schedule, const ReceiveSlots& slots);

}  // namespace penstock
