// What passes add to a schedule beside compute and messages: transfers to the slower pool,
// collectives, RECOMPUTE and STEP; when they run, and the memory of a rank that they change.
//
// Each rank has three links beside its compute: to the slower pool (OFFLOAD), from it (RELOAD), and
// for collectives (UNSHARD, REDUCE_GRAD). A transfer starts when the rank reaches its cell and the
// link is free, and occupies the link alone. Who needs the result waits for its end: I, B and
// RECOMPUTE for the row's RELOAD, compute for its stage's UNSHARD, STEP for its REDUCE_GRAD.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/holdings.h"

namespace penstock {

// Memory of one rank. Changes at the rank's own clock come in order of time; those of its links may
// lie ahead, and are queued until the clock has reached them. At one instant, what is given back
// goes before what is taken.
class MemoryLedger {
 public:
  enum Link { kOffloads, kReshards, kReloads, kUnshards };

  void Take(double time, double amount);
  void Give(double time, double amount);
  // At `time`, not before the last Take or Give: by its link, given back or taken.
  void Later(Link link, double time, double amount);
  // The peak, once nothing more comes.
  double Peak();

 private:
  struct Change {
    double time = 0;
    double amount = 0;  // below 0 where given back
  };
  struct Queue {
    std::vector<Change> changes;  // by time, from `next` on
    std::size_t next = 0;
  };
  // Makes the changes before `time`, and those at it: all, or only what is given back.
  void Advance(double time, bool all_at_it);

  double held_ = 0;
  double peak_ = 0;
  std::array<Queue, 4> queues_;
};

class SideWork {
 public:
  // Bits by Op of the cells that time or memory depend on under these costs. Where the schedule
  // has none of them, it runs the same without a SideWork.
  static std::uint32_t PricedOps(const Schedule& schedule, const Costs& costs);
  static constexpr std::uint32_t Bit(Op op) {
    return op < Op::kNone ? std::uint32_t{1} << static_cast<unsigned>(op) : 0;
  }

  // Both must outlive it.
  SideWork(const Schedule& schedule, const Costs& costs);

  // Compute: the earliest start as far as the rank's links say; what it takes and gives back. End
  // returns true where the part was the last that a STEP of another rank may wait for.
  double EarliestStart(const Part& part) const;
  void Begin(std::size_t rank, const Part& part, double start);
  bool End(std::size_t rank, const Part& part, double end);

  // A cell of PricedOps that its rank reaches at `clock`. Not `runs`: a STEP must wait until End or
  // Run says that gradients have become complete.
  struct Outcome {
    bool runs = true;
    bool completes = false;  // as End returns
    Span span;
  };
  Outcome Run(std::size_t rank, const Part& part, double clock);

  double Peak(std::size_t rank) { return ledgers_[rank].Peak(); }

 private:
  struct Links {
    double offload_free = 0, reload_free = 0, collective_free = 0;
  };
  // The gradients that one STEP waits for, of one update.
  struct Gradients {
    std::int64_t remaining = 0;  // weight gradients, and reductions of them
    double ready = 0;
  };

  Outcome RunStep(const Part& part, double clock);
  Outcome RunCollective(std::size_t rank, const Part& part, double clock);
  Outcome RunMove(std::size_t rank, const Part& part, double clock);
  bool Complete(std::size_t stage, std::size_t unit, double time);
  std::size_t Key(const Part& part) const { return part.stage * rows_ + Index(part.microbatch); }

  const Costs& costs_;
  const Holdings holdings_;
  const std::size_t rows_, rows_a_unit_, units_;
  const std::uint32_t priced_;
  std::vector<MemoryLedger> ledgers_;  // by rank
  std::vector<Links> links_;           // by rank
  std::vector<double> moved_;          // by (stage, row): end of its OFFLOAD, then of its RELOAD
  std::vector<double> unsharded_;      // by stage: end of its last UNSHARD
  std::vector<double> reduced_;        // by stage: end of its last REDUCE_GRAD
  std::vector<std::size_t> reductions_, steps_;  // by stage: cells so far
  std::vector<std::size_t> group_;  // by stage: whose gradients its STEP waits for; empty: its own
  std::vector<Gradients> gradients_;  // by (group, unit)
};

}  // namespace penstock
