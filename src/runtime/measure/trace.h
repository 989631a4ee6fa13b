// Trace: when every action of a run started and ended, and the activations held behind it.
//
// Units: nanoseconds of the steady clock inside, seconds in what is read out; bytes.
// A wait is not part of an action: an action starts when its input has arrived.
// Threads: each rank's thread writes its own rows, through its executor. The functions that read
// are for after the run; RankStep may also be called from the rank's own thread (in on_step).
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

// One entry of a rank's Program, in one step. Both entries of a pair start and end with the pair.
struct Stamp {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  // Held in memory by the entry's stage, after it; for a pair's first, as long as the second holds
  // its own.
  std::int64_t activation_bytes = 0;
  std::int64_t away_bytes = 0;  // beside those, in the slower pool
};

class Trace {
 public:
  // Keeps the last `kept_steps` steps of these ranks (of all where none is given); all memory is
  // taken here. `schedule` must outlive the trace.
  static Result<Trace> Make(const Schedule& schedule, int kept_steps = 32,
                            std::span<const int> ranks = {});

  const Schedule& schedule() const { return *schedule_; }
  const Program& program(int rank) const { return ranks_[rank].program; }

  // Rounds (steps of this run, from 0) that are recorded whole on every rank that the trace is of
  // and still kept: [first_round, last_round).
  std::int64_t first_round() const;
  std::int64_t last_round() const;

  // Stamps of one rank in one round, one for each entry of program(rank).
  std::span<const Stamp> RankStep(int rank, std::int64_t round) const;

  // For the executor: where the rank's stamps of a round go, and that they are all there.
  Stamp* Begin(int rank, std::int64_t round);
  void End(int rank, std::int64_t round) { ranks_[rank].ended = round + 1; }

  // Sets the stamps of a rank of another host in one round, one for each entry of program(rank):
  // the trace is of that rank too from now on. Requires: rounds in ascending order, and that no
  // thread reads the rank's stamps.
  void Set(int rank, std::int64_t round, std::span<const Stamp> stamps);

 private:
  struct Rank {
    Program program;
    bool kept = false;
    std::vector<Stamp> stamps;  // kept_steps rows
    std::int64_t begun = 0;     // rounds
    std::int64_t ended = 0;
  };

  std::size_t Row(const Rank& rank, std::int64_t round) const;

  const Schedule* schedule_ = nullptr;
  int kept_steps_ = 1;
  std::vector<Rank> ranks_;
};

// First start of a compute action of the round on any rank, in nanoseconds of the steady clock.
std::int64_t RoundOrigin(const Trace& trace, std::int64_t round);

// Spans of one round's lanes, in seconds from the first start of a compute action on any rank. A
// pair spans both parts; SEND and RECV cells have no length.
Timeline MeasuredTimeline(const Trace& trace, std::int64_t round);

struct RankMeasure {
  double busy = 0;       // seconds in the lane's actions that occupy the rank
  double wait = 0;       // seconds waiting for messages between its first and its last action
  double optimizer = 0;  // seconds in STEP where the lane has none
  double bubble = 0;     // 1 - busy / makespan
  double first_start = 0;
  double last_end = 0;
  std::int64_t peak_activation_bytes = 0;
};

// Seconds; the same definitions as the simulator's.
struct RunMeasure {
  double makespan = 0;   // first start of a compute action to last end of what occupies a rank
  double step_time = 0;  // from one step's first start to the next one's; makespan if only one step
  double bubble = 0;     // 1 - busiest rank's busy / makespan
  std::vector<RankMeasure> ranks;
};

// One round; `step_time` needs the round behind it, else it is the makespan and the optimizer.
RunMeasure MeasureRound(const Trace& trace, std::int64_t round);
// Medians over the kept rounds from `skip` on (a first step is often slow); the peak is the
// largest.
RunMeasure MeasureRun(const Trace& trace, int skip = 0);

// Median times (seconds) and activations (bytes) of every stage over the kept rounds from `skip`
// on, for the simulator. Where a stage ran B only, all its time is under backward_input. Where
// there are pairs, `overlap` is the share that one takes of its two parts' time when they run
// alone; a part that never does counts as half of its pairs. `comm` is the median time from a
// producer's end to the start of a consumer on another rank that was waiting for it.
Costs MeasuredCosts(const Trace& trace, int skip = 0);

}  // namespace penstock
