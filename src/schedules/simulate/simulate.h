// The simulator: finds the time and memory of a schedule in one event-driven pass, linear in its
// actions.
//
// It follows the runtime's semantics. Each rank runs its lane in order, one compute action at a
// time. An edge between ranks delays its consumer by costs.comm and occupies no rank. SEND takes no
// time, and RECV is only posted. WAIT_SEND delays its rank until the message has arrived and the
// other rank has posted its RECV. An overlapped pair starts when the inputs of both parts are
// available, and publishes both outputs at its end. Memory: F allocates its activation at its
// start; I frees at its end the part that W does not read; W or B frees the rest at its end.
// With costs.topology, messages take their links' latency and bandwidth (topology.h), and with
// costs.transfers ranks wait for their messages. Both need the actions in order of time, and so do
// offload transfers of ranks that share a link: the run is then linear but for a logarithm of the
// number of ranks.
// Passes of a sharded vocabulary occupy their rank and wait as vocabulary.h says; what all ranks
// compute together can be used costs.exchange after the last of them.
// Actions that passes add run on links concurrently with compute, or occupy the rank (RECOMPUTE,
// STEP): see side_work.h. A STEP waits for its REDUCE_GRAD and for the gradients of its stage's
// replicas; with costs.steps_wait_for_all, for the gradients of every stage.
#pragma once

#include <vector>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/sent_message.h"
#include "schedule/timeline.h"

namespace penstock {

class Jitter;  // noise/jitter.h

struct RankResult {
  double busy = 0;         // time in actions that occupy the rank
  double first_start = 0;  // of its first compute action
  double last_end = 0;     // of its last action, on the rank or on one of its links
  double peak_memory = 0;  // in the unit of costs' activations
};

struct SimulationResult {
  std::size_t actions = 0;  // compute actions; a pair is one
  double makespan = 0;      // from time zero to the last end of any action, transfers included
  double bubble = 0;        // 1 - ideal/makespan; ideal is the busiest rank's busy time
  double span_bubble =
      0;  // 1 - ideal/longest span; a span is from a rank's first start to its last end
  double peak_memory = 0;    // worst rank
  std::size_t messages = 0;  // between ranks, in both directions
  std::vector<RankResult> ranks;
};

struct SimulateOptions {
  Timeline* timeline = nullptr;    // if set, receives every action's span
  const Jitter* jitter = nullptr;  // if set, multiplies the times of actions that occupy a rank
  std::vector<SentMessage>* messages = nullptr;  // if set, receives every message between ranks
};

// Errors: kInvalidArgument if costs have another number of stages, or if the schedule cannot run to
// its end (names the waiting ranks and what they wait for). Does not validate otherwise: call
// Validate first on schedules from outside.
Result<SimulationResult> Simulate(const Schedule& schedule, const Costs& costs,
                                  const SimulateOptions& options = {});

}  // namespace penstock
