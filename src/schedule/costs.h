// Costs: what every action of a schedule costs. Priced here and nowhere else.
//
// Units: time in any one unit; memory in activations of one rank's share of one microbatch (or
// bytes, where the costs come from a measured model).
#pragma once

#include <algorithm>
#include <vector>

#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// One stage, one row (a microbatch, or a cut of one).
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double activation = 1;          // held from the start of F to the end of B or W
  double activation_after_i = 1;  // of it, still held between the end of I and the end of W
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

  // The same for every stage: f, i, w are of one rank's share of one microbatch, so a chunk costs
  // 1/v of it and a cut 1/k of that, in time and in memory.
  static Costs Uniform(const Placement& placement, int cuts, double f, double i, double w,
                       double comm = 0);

  // Time of one part; 0 for parts that only move or free things.
  double Duration(const Part& part) const {
    const StageCosts& stage = stages[part.stage];
    switch (part.op) {
      case Op::kForward:
        return stage.forward;
      case Op::kBackwardInput:
        return stage.backward_input;
      case Op::kBackwardWeight:
        return stage.backward_weight;
      case Op::kBackward:
        return stage.backward_input + stage.backward_weight;
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
};

}  // namespace penstock
