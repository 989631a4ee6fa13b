// A message between two ranks, simulated or measured.
#pragma once

#include <cstdint>

#include "schedule/deps.h"

namespace penstock {

// The value of `kind` that `stage` computed for a microbatch index. Unit of time: the timeline's.
struct SentMessage {
  ValueKind kind = ValueKind::kActivation;
  std::uint16_t stage = 0;
  int microbatch = 0;
  int from = 0, to = 0;  // ranks
  double sent = 0;       // when it leaves the sender
  double arrived = 0;
};

}  // namespace penstock
