// RunRanks: runs a schedule for a number of steps, with one thread per rank of this process.
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

class ProcessGroup;
class LocalRanks;
class StepQueue;

struct RunOptions {
  std::int64_t steps = 1;       // how often the schedule runs, however many steps it contains
  std::int64_t first_step = 0;  // number of the first step, for stages and on_step

  // The run ends if no rank of any process has started or ended an action for this long, not
  // counting time in which this process did not run.
  std::chrono::milliseconds watchdog{60000};
  // Set it (for example in a signal handler) to stop all ranks between actions; read 20 times per
  // second.
  const std::atomic<bool>* cancel = nullptr;
  // Set it to end the run after a complete step, the same on all ranks: the last one that any rank
  // has started. The run then succeeds with fewer steps.
  const std::atomic<bool>* stop = nullptr;
  // Receives how often the schedule ran if the run succeeds; may be null.
  std::int64_t* rounds_run = nullptr;

  // Called on each rank's thread: before its first action, and after each of its steps. Their
  // exceptions fail the run like a stage's. Ranks are not at the same step at the same time.
  std::function<void(int rank)> on_thread_start = {};
  std::function<void(int rank, std::int64_t step)> on_step = {};
  UpdateRule update = {};
  // Called on the thread of the last stage's rank with the verdict on each step's update, if the
  // rule needs the norm. If steps are made early, it comes in the next step.
  std::function<void(std::int64_t step, const Verdict& verdict)> on_verdict = {};
  // A thread inside a stage cannot be stopped from outside, so RunRanks waits for it. If one does
  // not return within `watchdog` of an abort, this is called once, on the caller's thread, with the
  // reason of the abort; a program prints the reason and exits.
  std::function<void(const Error& reason)> on_stuck = {};

  std::vector<int> cpus = {};  // rank r is pinned to cpus[r % size]; empty: not pinned
  Trace* trace = nullptr;      // of the same schedule, for the ranks of this process; may be null

  // Planes: how often the schedule runs at the same time, each time with stages, ranks and messages
  // of its own. Only the planes' stages know of each other: those of ranks with the same number may
  // exchange data, since all planes run the same actions in the same order. Rank r of the schedule
  // in plane p is number r * planes + p for the callbacks above, `cpus` and errors. Verdicts and
  // the trace are plane 0's. With several planes, `transport` is null.
  int planes = 1;

  // The ranks of all planes that this process runs, by these numbers, and the group of all
  // processes; null if this process runs all ranks.
  // With a group, every process calls RunRanks for its own ranks, with the same schedule and
  // numbers of steps.
  const LocalRanks* ranks = nullptr;
  ProcessGroup* group = nullptr;
  Transport* transport = nullptr;  // a new one for the same schedule; null: DefaultTransport
  StepQueue* queue = nullptr;      // of RunSession: says when each step begins; null: at once
};

// Runs the schedule `steps` times and returns after every thread of this process has ended.
// `stages` are by plane, then by stage number; other processes' may be null. Whatever ends the run
// early ends it on all processes: a failure, `cancel` and the watchdog abort the group, and `stop`
// ends it after the same step. Errors:
//   kInvalidArgument  before anything runs: an invalid schedule, a missing stage
//   kUnavailable  a stage threw ("rank 1: 3B2: MESSAGE"), or `cancel` was set
//   kDeadlineExceeded  the watchdog ended the run; says what each rank runs or waits for
//   kInternal  a stage threw InternalError
Status RunRanks(const Schedule& schedule, std::span<Stage* const> stages,
                const RunOptions& options = {});

}  // namespace penstock
