// Emulation: a machine of emulated devices, one a rank. Compute, transfers and collectives take the
// cost model's time without using a core, so that many ranks run the real executor and transport on
// few cores: real threads, real messages, real waits.
//
// Each device has a clock of its own, which says when it is through with its last action. An action
// starts when the device is free and its inputs are there, by the times that they were due, not by
// those at which a thread woke up; the thread sleeps to that absolute deadline. So a thread that
// wakes up late delays nobody, unless it is late by more than the action takes. What the run takes
// is measured in real time by the executor's trace.
//
// Links as the simulator prices them (simulate/simulate.h, simulate/side_work.h): a message between
// ranks arrives `comm` after it is made and occupies nobody; each rank has three links that carry
// one thing at a time, to the slower pool, from it, and for collectives. This is a second
// implementation of those rules, of purpose: that both agree says something.
//
// Units: costs are in units of `unit` time, and of `activation_bytes` memory.
// A message carries who made it, and a stage that gets another one than it should throws: a run
// proves its own delivery.
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

// Of one run: give stages() and transport() to RunRanks once.
class Emulation {
 public:
  // Keeps `schedule`, which must outlive it and be valid. Requires: `costs` has one entry a stage.
  Emulation(const Schedule& schedule, const Costs& costs, const EmulationOptions& options = {});
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;
  ~Emulation();

  std::span<Stage* const> stages() const { return stage_pointers_; }
  Transport& transport();

  // The rest is for after the run.
  //
  // When all devices started, in nanoseconds of the steady clock.
  std::int64_t start() const;
  // Most that a rank's device held at one time: activations, and gathered weights where they are
  // priced. By the simulator's rule (simulate/memory.h).
  std::int64_t PeakBytes(int rank) const;
  // When each of a rank's actions that occupy it was due, in order, in units from the run's start;
  // the program's own STEPs too, where the schedule has none.
  std::vector<Span> DueSpans(int rank) const;
  // Messages that went from one rank to another.
  std::int64_t messages() const;
  // The most that an action's end was late. Small beside an action, or the machine is too slow for
  // so many ranks at this unit.
  std::chrono::nanoseconds worst_lateness() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
  std::vector<Stage*> stage_pointers_;
};

}  // namespace penstock
