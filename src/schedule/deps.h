// What an action waits for. This file alone says it: validator, communication pass, simulator and
// executor all ask here.
//
//   F(s,n)    waits for F(s-1,n)                   I(s,n), B(s,n)  wait for F(s,n) and I|B(s+1,n)
//   W(s,n)    waits for I(s,n)
//   with sequence slices (row n is slice n % slices of its microbatch), on one stage:
//   F(s,n)    also for F(s,n-1) of the same microbatch; I|B(s,n) also for I|B(s,n+1)
#pragma once

#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// What a compute part makes that others wait for.
enum class ValueKind : std::uint8_t {
  kActivation,  // a stage's output, made by F
  kGradient,    // a stage's input gradient (and the end of its I), made by I or B
};

struct Value {
  ValueKind kind;
  int stage;       // the stage that makes it
  int microbatch;  // row number
};

// The numbers that dependencies hang on.
struct ChainShape {
  int chain_length = 1;  // stages in one chain
  int slices = 1;

  static ChainShape Of(const Schedule& schedule) {
    return {schedule.placement.chain_length(), schedule.slices};
  }
};

// A stage's neighbours in its chain, -1 at its ends: what a hot loop keeps in a table.
struct Neighbours {
  int previous = -1;
  int next = -1;

  static constexpr Neighbours Of(const ChainShape& shape, int stage) {
    return {stage % shape.chain_length != 0 ? stage - 1 : -1,
            (stage + 1) % shape.chain_length != 0 ? stage + 1 : -1};
  }
};

// Calls visit(Value) for each value that the compute part waits for. The value that may come from
// another rank, if any, is visited first.
template <class Visit>
inline void ForEachDependency(const Neighbours& neighbours, int slices, const Part& part,
                              Visit&& visit) {
  const int stage = part.stage;
  const int row = part.microbatch;
  switch (part.op) {
    case Op::kForward:
      if (neighbours.previous >= 0) visit(Value{ValueKind::kActivation, neighbours.previous, row});
      if (slices > 1 && row % slices != 0) visit(Value{ValueKind::kActivation, stage, row - 1});
      break;
    case Op::kBackwardInput:
    case Op::kBackward:
      if (neighbours.next >= 0) visit(Value{ValueKind::kGradient, neighbours.next, row});
      visit(Value{ValueKind::kActivation, stage, row});
      if (slices > 1 && row % slices != slices - 1)
        visit(Value{ValueKind::kGradient, stage, row + 1});
      break;
    case Op::kBackwardWeight:
      visit(Value{ValueKind::kGradient, stage, row});
      break;
    default:
      break;
  }
}
template <class Visit>
inline void ForEachDependency(const ChainShape& shape, const Part& part, Visit&& visit) {
  ForEachDependency(Neighbours::Of(shape, part.stage), shape.slices, part, visit);
}

// What F, I and B leave for others: F the activation, I and B the gradient.
constexpr ValueKind MadeBy(Op op) {
  return op == Op::kForward ? ValueKind::kActivation : ValueKind::kGradient;
}

}  // namespace penstock
