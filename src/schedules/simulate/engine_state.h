// The state of ranks and the prices of stages, as the simulator's loop reads them. Private to
// simulate/.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "base/index.h"
#include "simulate/arrivals.h"

namespace penstock {

inline constexpr Arrivals::Key kNothingMissing = std::numeric_limits<Arrivals::Key>::max();
// The key for a STEP that waits for gradients of other ranks' stages.
inline constexpr Arrivals::Key kOtherGradients = kNothingMissing - 1;
inline constexpr int kNobody = -1;
inline constexpr std::size_t kComputeOps = 4;  // F, I, W, B: the first of Op

// One rank's place in its lane: one cache line.
struct alignas(64) LaneState {
  std::size_t position = 0;
  double clock = 0;
  double busy = 0;
  double first_start = -1;  // none yet
  double memory = 0;
  double peak_memory = 0;
  Arrivals::Key waits_for = kNothingMissing;
  std::size_t others = 0;  // number of actions so far that do not compute
};

// When a rank continues, if ranks run in order of time.
struct Turn {
  double time = 0;
  // Whether the rank has chosen its next action, which starts at `time`: it only waits for its own
  // transfers, or for gradients.
  bool chosen = false;
};

// Puts the rank with the earliest turn first in a heap.
struct Later {
  const std::vector<Turn>& turns;
  bool operator()(int a, int b) const {
    const Turn &first = turns[Index(a)], &second = turns[Index(b)];
    if (first.time != second.time) return first.time > second.time;
    return first.chosen != second.chosen ? second.chosen : a > b;
  }
};

// What the loop reads for a stage: one cache line.
struct alignas(64) StageEntry {
  int rank = 0;
  int consumer[2] = {kNobody, kNobody};  // by ValueKind: the other rank that needs it, if any
  double duration[kComputeOps] = {};
  double activation = 0;
  double activation_after_i = 0;
};
static_assert(sizeof(LaneState) == 64 && sizeof(StageEntry) == 64);

// How ranks take turns.
enum class Order {
  kAny,        // each runs as far as it can: values arrive one latency later
  kOfTime,     // what shares a link, and who waits for whom, depends on the order
  kFreeLinks,  // as kAny, with the links' latencies and sizes
};

enum class LaneEnd {
  kWaitsOrDone,
  kMalformed,  // an action that does not belong to the rank
  kSends,      // the first SEND or RECV, if none was expected
  kSideWork,   // the first action of SideWork::PricedOps, if none was expected
};

// The shares of a value that all ranks compute together.
struct Joined {
  std::size_t ranks = 0;
  double end = 0;  // of the latest
};

}  // namespace penstock
