// RunRanks: runs a schedule for a number of steps, one thread per rank of this host.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/measure/trace.h"
#include "runtime/stage.h"
#include "runtime/transport.h"
#include "runtime/update/update.h"
#include "schedule/schedule.h"

namespace penstock {

class HostGroup;
class HostedRanks;

struct RunOptions {
  std::int64_t steps = 1;       // times that the schedule is run, whatever steps it holds itself
  std::int64_t first_step = 0;  // number of the first step, as stages and on_step are told

  // The run ends when no rank of any host has started or ended an action for so long.
  std::chrono::milliseconds watchdog{60000};
  // Set (by a signal handler, say) to stop all ranks between actions; read 20 times a second.
  const std::atomic<bool>* cancel = nullptr;
  // Set to end the run after a whole step, the same on all ranks: the last that any rank has begun.
  // The run then succeeds, with fewer steps.
  const std::atomic<bool>* stop = nullptr;
  // Where to leave how often the schedule was run when the run has succeeded; null: nobody asks.
  std::int64_t* rounds_run = nullptr;

  // On each rank's thread: before its first action, and after each of its steps. What they throw
  // fails the run like a stage's exception. The ranks are not at the same step at the same time.
  std::function<void(int rank)> on_thread_start;
  std::function<void(int rank, std::int64_t step)> on_step;
  UpdateRule update;
  // On the thread of the last stage's rank, where the rule asks for the norm: what became of each
  // step's update. Where steps are made early, it comes in the step behind.
  std::function<void(std::int64_t step, const Verdict& verdict)> on_verdict;
  // A thread inside a stage cannot be stopped from outside: RunRanks waits for it. Where one does
  // not return within `watchdog` of an abort, this is called once, on the caller's thread, with the
  // reason of the abort; a program prints it and exits.
  std::function<void(const Error& reason)> on_stuck;

  std::vector<int> cpus;   // rank r is pinned to cpus[r % size]; empty: not pinned
  Trace* trace = nullptr;  // of the same schedule, for the ranks of this host; null: none is kept

  // The ranks of this host, and the group of all hosts; null: this process runs all ranks. With a
  // group every host calls RunRanks for its own ranks, with the same schedule and numbers of steps.
  const HostedRanks* ranks = nullptr;
  HostGroup* group = nullptr;
  Transport* transport = nullptr;  // fresh, of the same schedule; null: DefaultTransport
};

// Runs the schedule `steps` times and returns when every thread of this host has ended. `stages` by
// stage number; those of other hosts' ranks may be null. What ends the run early ends it on all
// hosts: a failure, `cancel` and the watchdog, which abort the group; and `stop`, after the same
// step. Errors:
//   kInvalidArgument  before anything runs: an invalid schedule, a missing stage
//   kUnavailable  a stage threw: "rank 1: 3B2: what it said"; or `cancel` was set
//   kDeadlineExceeded  the watchdog ended the run: what each rank runs or waits for
//   kInternal  a stage threw InternalError
Status RunRanks(const Schedule& schedule, std::span<Stage* const> stages,
                const RunOptions& options = {});

}  // namespace penstock
