// Emulation: a machine of emulated devices, one per rank. Compute, transfers and collectives take
// the time of the cost model without using a core, so that many ranks run the real executor and
// transport on few cores: real threads, real messages, real waits.
//
// Each device has its own clock, which states when its last action ends. An action starts when the
// device is free and its inputs are due, regardless of when a thread woke up; the thread sleeps
// until that absolute deadline. A thread that wakes up late therefore delays nothing, unless it is
// later than the action takes. The executor's trace measures the run in real time.
//
// Links are priced as in the simulator (simulate/simulate.h, simulate/side_work.h). A message
// between ranks arrives `comm` after it was sent and occupies no rank. Each rank has three links
// that carry one transfer at a time: to the slower pool, from it, and for collectives. This is a
// second implementation of those rules on purpose, so that agreement between the two means
// something.
//
// Units: costs are in units of `unit` time and of `activation_bytes` memory.
// A message carries its producer, and a stage that receives a wrong one throws, so each run
// verifies its own delivery.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/stage.h"
#include "runtime/transport.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct EmulationOptions {
  std::chrono::nanoseconds unit{1000000};  // one unit of cost time
  double activation_bytes = 1 << 20;       // one unit of cost memory
};

// The machine of one run: pass stages() and transport() to RunRanks once.
class Emulation {
 public:
  // `schedule` must be valid and outlive the emulation. Requires: `costs` has one entry per stage.
  Emulation(const Schedule& schedule, const Costs& costs, const EmulationOptions& options = {});
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;
  ~Emulation();

  std::span<Stage* const> stages() const { return stage_pointers_; }
  Transport& transport();

  // The rest may be called only after the run.
  //
  // The start of all devices, in nanoseconds of the steady clock.
  std::int64_t start() const;
  // Peak memory of a rank's device: activations, and gathered weights if they are priced. Follows
  // the simulator's rule (simulate/memory/memory_over_time.h).
  std::int64_t PeakBytes(int rank) const;
  // The due spans of a rank's actions that occupy it, in order, in units from the start of the run.
  // Includes the program's own STEPs if the schedule has none.
  std::vector<Span> DueSpans(int rank) const;
  // The end of the last transfer on a link of the rank's device, in the same units; at most 0 if
  // there was none.
  double LastTransferEnd(int rank) const;
  // The number of messages between ranks.
  std::int64_t messages() const;
  // The maximum lateness of an action's end. If it is not small compared with an action, the
  // machine is too slow for this many ranks at this unit.
  std::chrono::nanoseconds worst_lateness() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
  std::vector<Stage*> stage_pointers_;
};

}  // namespace penstock
