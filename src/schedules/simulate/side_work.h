// The actions that passes add apart from compute and messages: transfers to the slower pool,
// collectives, RECOMPUTE and STEP; when they run, and how they change the memory of a rank.
//
// Each rank has three links that work concurrently with its compute: to the slower pool (OFFLOAD),
// from it (RELOAD), and for collectives (UNSHARD, REDUCE_GRAD). A transfer starts when the rank
// reaches it and the link is free, and occupies the whole link. Whatever needs the result waits for
// its end: I, B and RECOMPUTE for the RELOAD of their microbatch, compute for the UNSHARD of its
// stage, STEP and WAIT_REDUCE_GRAD for their REDUCE_GRAD.
//
// With costs.offload_sharing, neighboring ranks share their links to and from the slower pool,
// which carry transfers in the order in which ranks reach them; at the same time, the lower rank
// goes first. A RELOAD that waits for its own OFFLOAD keeps its place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/memory/holdings.h"

namespace penstock {

// The memory of one rank. Changes by the rank itself come in order of time. Changes by its links
// may be in the future, and are queued until the clock reaches them. At the same time, memory is
// freed before it is allocated.
class MemoryLedger {
 public:
  enum Link { kOffloads, kReshards, kReloads, kUnshards };

  void Allocate(double time, double amount);
  void Free(double time, double amount);
  // Queues a change by a link at `time`, which must not be before the last Allocate or Free.
  void Later(Link link, double time, double amount);
  // Returns the peak. Call it after the last change.
  double Peak();

 private:
  struct Change {
    double time = 0;
    double amount = 0;  // negative if freed
  };
  struct Queue {
    std::vector<Change> changes;  // by time, from `next` on
    std::size_t next = 0;
  };
  // Applies the changes before `time`, and at `time` all changes, or only those that free memory.
  void Advance(double time, bool all_at_it);

  double held_ = 0;
  double peak_ = 0;
  std::array<Queue, 4> queues_;
};

class SideWork {
 public:
  // Bits by Op of the actions that affect time or memory with these costs. A schedule without any
  // of them runs the same without a SideWork.
  static std::uint32_t PricedOps(const Schedule& schedule, const Costs& costs);
  // Whether ranks share links to the slower pool and use them. The ranks' actions must then run in
  // order of time.
  static bool SharesPoolLinks(const Schedule& schedule, const Costs& costs);
  static constexpr std::uint32_t Bit(Op op) {
    return op < Op::kNone ? std::uint32_t{1} << static_cast<unsigned>(op) : 0;
  }

  // Both arguments must outlive this object.
  SideWork(const Schedule& schedule, const Costs& costs);

  // For compute (Begin and End also for passes of the vocabulary): EarliestStart is the earliest
  // start that the rank's links allow; Begin and End change the memory. End returns true if the
  // part is the last one that a STEP of another rank may wait for.
  double EarliestStart(const Part& part) const;
  void Begin(std::size_t rank, const Part& part, double start);
  bool End(std::size_t rank, const Part& part, double end);

  // Returns when an action of PricedOps that its rank reaches at `clock` starts to occupy the rank;
  // `clock` if it does not, or if that is not known yet.
  double StartOf(const Part& part, double clock) const;

  // Runs an action of PricedOps that its rank reaches at `clock`. If it does not run, it is a STEP
  // that must wait until End or Run reports complete gradients. RECOMPUTE and STEP take `factor`
  // times their duration.
  struct Outcome {
    bool runs = true;
    bool completes = false;  // as returned by End
    Span span;
  };
  Outcome Run(std::size_t rank, const Part& part, double clock, double factor = 1);

  double Peak(std::size_t rank) { return ledgers_[rank].Peak(); }
  // When the rank's last transfer on one of its links ended; 0 if it had none.
  double LastTransferEnd(std::size_t rank) const { return transfer_ends_[rank]; }

 private:
  // When the links to and from the slower pool have carried all transfers so far.
  struct PoolLinks {
    double offload_free = 0, reload_free = 0;
  };
  // The gradients that one STEP waits for, of one update.
  struct Gradients {
    std::int64_t remaining = 0;  // weight gradients, and reductions of them
    double ready = 0;
  };

  // The gradients that the stage's next STEP waits for; null if only for its own.
  const Gradients* NextGradients(std::size_t stage) const;
  Outcome RunStep(const Part& part, double clock, double factor);
  Outcome RunCollective(std::size_t rank, const Part& part, double clock);
  Outcome RunRecompute(std::size_t rank, const Part& part, double clock, double factor);
  Outcome RunMove(std::size_t rank, const Part& part, double clock);
  bool Complete(std::size_t stage, std::size_t update, double time);
  std::size_t Key(const Part& part) const { return part.stage * indices_ + Index(part.microbatch); }

  const Schedule& schedule_;
  const Costs& costs_;
  const Holdings holdings_;
  const std::size_t indices_, indices_per_update_, updates_;
  const std::uint32_t priced_;
  std::vector<MemoryLedger> ledgers_;    // by rank
  std::vector<double> collective_free_;  // by rank: when its link for collectives is free
  std::vector<double> transfer_ends_;    // by rank: the last end of its transfers on any link
  const std::size_t pool_sharing_;       // ranks that share their links to the slower pool
  std::vector<PoolLinks> pool_links_;    // by rank / pool_sharing_
  std::vector<double> moved_;      // by (stage, microbatch): end of its OFFLOAD, then of its RELOAD
  std::vector<double> unsharded_;  // by stage: end of its last UNSHARD
  std::vector<double> reduced_;    // by stage: end of its last REDUCE_GRAD
  std::vector<std::size_t> reductions_, steps_;  // by stage: number so far
  std::vector<std::size_t>
      group_;  // by stage: the gradients that its STEP waits for; empty: its own
  std::vector<Gradients> gradients_;  // by (group, update)
};

}  // namespace penstock
