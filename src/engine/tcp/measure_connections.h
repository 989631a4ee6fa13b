// Measures messages and collectives between two ranks of this machine.
#pragma once

#include "base/result.h"
#include "schedule/cost_files/stage_profile.h"

namespace penstock {

struct MeasuredConnections {
  ConnectionCosts threads;    // of one process
  ConnectionCosts processes;  // as two processes connected by TCP on this machine see each other
};

// Sends messages of nothing and of `message_bytes` to and fro between two ranks, and sums
// `reduced_bytes` over them. Takes about a second, and two cores. Errors: kUnavailable if the
// machine has no loopback interface.
Result<MeasuredConnections> MeasureConnections(double message_bytes, double reduced_bytes);

}  // namespace penstock
