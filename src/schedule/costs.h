// Costs: what every action of a schedule costs. Priced here and nowhere else.
//
// Units: time in any one unit; memory in activations of one rank's share of one microbatch (or
// bytes, where the costs come from a measured model).
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "base/result.h"
#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// The longest time and the largest amount of memory that a cost may be: sums over any schedule stay
// finite, and their figures short enough to print.
inline constexpr double kMostTime = 1e15;
inline constexpr double kMostMemory = 1e18;  // in bytes, a million terabytes

// Refuses what no cost can be: less than 0, or more than the most. The caller adds whose it is.
Status CheckTime(double time);
Status CheckMemory(double amount);

// One stage, one row (a microbatch, or a slice of one).
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double activation = 1;          // held from the start of F to the end of B or W
  double activation_after_i = 1;  // of it, still held between the end of I and the end of W
  // Of what passes add. All 0: at once, and for nothing.
  double recompute = 0;         // time of RECOMPUTE, which occupies the rank
  double input_activation = 0;  // of `activation`, what F keeps of a row that is recomputed
  double step = 0;              // time of STEP, which occupies the rank
  double unshard = 0;           // time of UNSHARD, on the rank's link for collectives
  double reduce = 0;            // time of REDUCE_GRAD, on the same link
  double gathered = 0;          // memory of the gathered weights, from UNSHARD's start to RESHARD
  // Of a slice: what more (less, if negative) is held from the end of its I or B on. The last
  // slice's backward makes gradients for the keys and values of the slices before it, and each of
  // these takes its own away: over the slices of a stage they add up to 0.
  double gradients_of_others = 0;

  // What I, W or B gives back at its end; negative where it leaves more than it found.
  double Freed(Op op) const {
    switch (op) {
      case Op::kBackward:
        return activation - gradients_of_others;
      case Op::kBackwardInput:
        return activation - activation_after_i - gradients_of_others;
      case Op::kBackwardWeight:
        return activation_after_i;
      default:
        return 0;
    }
  }
};

// What an overlapped pair costs, from its forward f and its backward b.
struct OverlapRule {
  enum class Kind { kMax, kSum, kFactor } kind = Kind::kMax;
  double factor = 1;  // kFactor: factor * (f + b)

  double Price(double f, double b) const {
    switch (kind) {
      case Kind::kMax:
        return std::max(f, b);
      case Kind::kSum:
        return f + b;
      case Kind::kFactor:
        return factor * (f + b);
    }
    return f + b;
  }
};

struct Costs {
  std::vector<StageCosts> stages;  // one a stage of the placement
  double comm = 0;                 // latency of a transfer between two ranks
  OverlapRule overlap;
  // Time that one unit of memory takes to the slower pool and back: each rank has a link of its own
  // for either direction, and one transfer at a time on it.
  double offload = 0, reload = 0;
  // Without post-validation a STEP waits until every stage has its gradients (for their global
  // norm); else only until the stage and its replicas have.
  bool steps_wait_for_all = false;
  double message_bytes = 0;  // of the tensor between two stages for one row; 0: nobody knows
  // Where the slices of a sequence differ (later ones attend to more): by stage, then by slice.
  // Empty: they are all as `stages` says.
  std::vector<StageCosts> by_slice;

  // The same for every stage: f, i, w are of one rank's share of one microbatch, so a chunk costs
  // 1/v of it and a slice 1/k of that, in time and in memory. RECOMPUTE takes as long as F.
  static Costs Uniform(const Placement& placement, int slices, double f, double i, double w,
                       double comm = 0);

  // Of the part's stage, and of its slice where slices differ.
  const StageCosts& Of(const Part& part) const {
    if (by_slice.empty()) return stages[part.stage];
    const std::size_t slices = by_slice.size() / stages.size();
    return by_slice[part.stage * slices + Index(part.microbatch) % slices];
  }
  // Time of one part; 0 for parts that do not occupy the rank.
  double Duration(const Part& part) const {
    const StageCosts& stage = Of(part);
    switch (part.op) {
      case Op::kForward:
        return stage.forward;
      case Op::kBackwardInput:
        return stage.backward_input;
      case Op::kBackwardWeight:
        return stage.backward_weight;
      case Op::kBackward:
        return stage.backward_input + stage.backward_weight;
      case Op::kRecompute:
        return stage.recompute;
      case Op::kStep:
        return stage.step;
      default:
        return 0;
    }
  }
  double Duration(const Action& action) const {
    if (!action.is_pair()) return Duration(action.first);
    return action.first.op == Op::kForward
               ? overlap.Price(Duration(action.first), Duration(action.second))
               : overlap.Price(Duration(action.second), Duration(action.first));
  }
  // Time on one of the rank's links of a part that runs beside compute and moves `amount` of
  // memory; 0 for the others.
  double TransferTime(const Part& part, double amount) const {
    switch (part.op) {
      case Op::kUnshard:
        return stages[part.stage].unshard;
      case Op::kReduceGrad:
        return stages[part.stage].reduce;
      case Op::kOffload:
        return amount * offload;
      case Op::kReload:
        return amount * reload;
      default:
        return 0;
    }
  }
};

}  // namespace penstock
