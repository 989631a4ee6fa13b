// The lane that most zero-bubble schedules share: warm-up, then F, I and W in turn.
#pragma once

#include <algorithm>

#include "base/index.h"
#include "schedule/reserve.h"

namespace penstock {

struct SplitTurns {
  int count = 0;   // number of each of F, I and W
  int warmup = 0;  // forwards before the first turn; at most count
  int lag = 0;     // turns with an F before the first W: the number of pending weight gradients
};

// Returns one lane: `warmup` forwards, then F, I and W in turn. A turn skips kinds that have run
// out, and W until `lag` turns have passed. next_f(), next_i() and next_w() return the actions in
// their order.
template <class NextF, class NextI, class NextW>
Lane WarmUpThenSplitTurns(const SplitTurns& turns, NextF next_f, NextI next_i, NextW next_w) {
  Lane lane;
  ReserveLong(lane, 3 * Index(turns.count));
  for (int i = 0; i < turns.warmup; ++i) lane.push_back(next_f());
  const int forward_turns = turns.count - turns.warmup;
  const int lag = std::min(turns.lag, forward_turns);
  for (int turn = 0; turn < turns.count + lag; ++turn) {
    if (turn < forward_turns) lane.push_back(next_f());
    if (turn < turns.count) lane.push_back(next_i());
    if (turn >= lag) lane.push_back(next_w());
  }
  return lane;
}

}  // namespace penstock
