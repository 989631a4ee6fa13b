// Trace: when every action of a run started and ended, and the activations that were alive after
// it.
//
// Units: nanoseconds of the steady clock inside; seconds and bytes in derived figures.
// Waiting is not part of an action: an action starts when its input has arrived.
// Threads: each rank's thread writes its own stamps, through its executor. The readers are for
// after the run, but a rank's own thread may also call RankStep (in on_step).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/program.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// The stamp of one entry of a rank's Program in one step. Both entries of a pair start and end with
// the pair.
struct Stamp {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  // Activations of the entry's stage in memory after it. For the first part of a pair, the value
  // while the activations of the second part are still alive.
  std::int64_t activation_bytes = 0;
  std::int64_t offloaded_bytes = 0;  // additional activations, in the slower pool
  // When a B that ran alone sent its input gradient; 0 for other entries. A stage may send it
  // before the weight gradients are computed.
  std::int64_t sent_ns = 0;
};

class Trace {
 public:
  // Records the last `kept_steps` steps of these ranks (of all ranks if none are given) and
  // allocates all memory here. `schedule` must outlive the trace.
  static Result<Trace> Make(const Schedule& schedule, int kept_steps = 32,
                            std::span<const int> ranks = {});

  const Schedule& schedule() const { return *schedule_; }
  const Program& program(int rank) const { return ranks_[rank].program; }

  // The rounds (steps of this run, from 0) that are completely recorded on every rank of the trace
  // and not yet overwritten: [first_round, last_round).
  std::int64_t first_round() const;
  std::int64_t last_round() const;

  // Returns the stamps of one rank in one round, one for each entry of program(rank).
  std::span<const Stamp> RankStep(int rank, std::int64_t round) const;

  // For the executor: Begin returns where the rank's stamps of a round go, and End marks them
  // complete.
  Stamp* Begin(int rank, std::int64_t round);
  void End(int rank, std::int64_t round) { ranks_[rank].ended = round + 1; }

  // Sets the stamps of a rank of another process in one round, one for each entry of program(rank):
  // the trace is of that rank too from now on. Requires: rounds in ascending order, and that no
  // thread reads the rank's stamps.
  void Set(int rank, std::int64_t round, std::span<const Stamp> stamps);

 private:
  struct Rank {
    Program program;
    bool kept = false;          // whether the trace includes this rank
    std::vector<Stamp> stamps;  // of kept_steps_ rounds
    std::int64_t begun = 0;     // rounds
    std::int64_t ended = 0;
  };

  std::size_t Offset(const Rank& rank, std::int64_t round) const;

  const Schedule* schedule_ = nullptr;
  int kept_steps_ = 1;
  std::vector<Rank> ranks_;
};

// Returns the first start of a compute action or an UNSHARD of the round on any rank, in ns of the
// steady clock.
std::int64_t RoundOrigin(const Trace& trace, std::int64_t round);

// Returns the spans of one round's lanes, in seconds from the first start of a compute action on
// any rank. A pair spans both parts; SEND and RECV have no duration.
Timeline MeasuredTimeline(const Trace& trace, std::int64_t round);

struct RankMeasure {
  double busy = 0;       // seconds in the lane's actions that occupy the rank
  double wait = 0;       // seconds waiting for messages between its first and its last action
  double optimizer = 0;  // seconds in STEPs that are not in the lane
  double bubble = 0;     // 1 - busy / makespan
  double first_start = 0;
  double last_end = 0;
  std::int64_t peak_activation_bytes = 0;
};

// Seconds; the same definitions as the simulator's.
struct RunMeasure {
  double makespan = 0;  // from the first start of a compute action to the end of the last action
  double step_time =
      0;  // from one step's first start to the next step's; the makespan if there is only one
  double bubble = 0;  // 1 - busiest rank's busy / makespan
  std::vector<RankMeasure> ranks;
};

// Measures one round. `step_time` needs the next round; without it, it is the makespan plus the
// optimizer.
RunMeasure MeasureRound(const Trace& trace, std::int64_t round);
// Returns medians over the recorded rounds from `skip` on, because a first step is often slow. The
// peak is the maximum.
RunMeasure MeasureRun(const Trace& trace, int skip = 0);

// Returns median times (seconds) and activations (bytes) of every stage over the recorded rounds
// from `skip` on, for the simulator. If a stage only ran B, backward_input is the time until it
// sent the input gradient, and `early_gradients` is set. If there are pairs, `overlap` is the time
// of a pair relative to its two parts alone; a part that never runs alone counts as half of its
// pairs. `comm` is the median time from a producer's end to the start of a consumer on another rank
// that was waiting for it. With `by_microbatch`, the medians are of each microbatch index
// (Costs::by_slice), because microbatches differ in length.
Costs MeasuredCosts(const Trace& trace, int skip = 0, bool by_microbatch = false);

}  // namespace penstock
