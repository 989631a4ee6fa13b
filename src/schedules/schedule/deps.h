// The dependencies between actions, defined only here: validator, communication pass, simulator and
// executor all use this.
//
//   F(s,n)    waits for F(s-1,n)                   I(s,n), B(s,n)  wait for F(s,n) and I|B(s+1,n)
//   W(s,n)    waits for I(s,n)
//   WAIT_SEND_F(s,n) waits for RECV_F(s+1,n)      WAIT_SEND_B(s,n) waits for RECV_B(s-1,n)
//   with sequence slices (index n is slice n % slices of its microbatch), on one stage:
//   F(s,n)    also for F(s,n-1) of the same microbatch; I|B(s,n) also for I|B(s,n+1)
#pragma once

#include "schedule/action.h"
#include "schedule/schedule.h"

namespace penstock {

// A value that a compute part produces and others wait for.
enum class ValueKind : std::uint8_t {
  kActivation,  // a stage's output, produced by F
  kGradient,    // a stage's input gradient (and the end of its I), produced by I or B
};

struct Value {
  ValueKind kind;
  int stage;       // the stage that produces it
  int microbatch;  // microbatch index
};

// The sizes that dependencies are computed from.
struct ChainShape {
  int chain_length = 1;  // stages in one chain
  int slices = 1;

  static ChainShape Of(const Schedule& schedule) {
    return {schedule.placement.chain_length(), schedule.slices};
  }
};

// A stage's neighbors in its chain, -1 at its ends. Hot loops keep a table of them.
struct Neighbors {
  int previous = -1;
  int next = -1;

  static constexpr Neighbors Of(const ChainShape& shape, int stage) {
    return {stage % shape.chain_length != 0 ? stage - 1 : -1,
            (stage + 1) % shape.chain_length != 0 ? stage + 1 : -1};
  }
};

// Calls visit(Value) for each value that the compute part waits for. The value that may come from
// another rank, if any, is visited first.
template <class Visit>
inline void ForEachDependency(const Neighbors& neighbors, int slices, const Part& part,
                              Visit&& visit) {
  const int stage = part.stage;
  const int n = part.microbatch;
  switch (part.op) {
    case Op::kForward:
      if (neighbors.previous >= 0) visit(Value{ValueKind::kActivation, neighbors.previous, n});
      if (slices > 1 && n % slices != 0) visit(Value{ValueKind::kActivation, stage, n - 1});
      break;
    case Op::kBackwardInput:
    case Op::kBackward:
      if (neighbors.next >= 0) visit(Value{ValueKind::kGradient, neighbors.next, n});
      visit(Value{ValueKind::kActivation, stage, n});
      if (slices > 1 && n % slices != slices - 1) visit(Value{ValueKind::kGradient, stage, n + 1});
      break;
    case Op::kBackwardWeight:
      visit(Value{ValueKind::kGradient, stage, n});
      break;
    default:
      break;
  }
}
template <class Visit>
inline void ForEachDependency(const ChainShape& shape, const Part& part, Visit&& visit) {
  ForEachDependency(Neighbors::Of(shape, part.stage), shape.slices, part, visit);
}

// The stage that reads a value of its neighbor: the next one an activation, the previous one a
// gradient, if it has a backward. -1 if there is none.
inline int ReaderOf(const Schedule& schedule, ValueKind kind, int stage) {
  if (kind == ValueKind::kActivation) return schedule.placement.next(stage);
  const int previous = schedule.placement.previous(stage);
  const bool reads = previous >= 0 && schedule.backward_of(previous) != StageBackward::kNone;
  return reads ? previous : -1;
}

// Whether the op is the last reader of a microbatch's activations on a stage with such a backward.
constexpr bool EndsMicrobatch(StageBackward backward, Op op) {
  if (backward == StageBackward::kWhole) return EndsMicrobatch(op);
  return backward == StageBackward::kNone ? op == Op::kForward : MakesInputGradient(op);
}
// Whether the op adds a microbatch's share to the gradients of what the stage trains.
constexpr bool AddsGradients(StageBackward backward, Op op) {
  if (backward == StageBackward::kWhole) return AddsGradients(op);
  return backward == StageBackward::kAdapters && MakesInputGradient(op);
}
// Whether the stage has gradients, and so STEPs.
constexpr bool HasGradients(StageBackward backward) {
  return backward == StageBackward::kWhole || backward == StageBackward::kAdapters;
}

// The value that F, I or B produces: F the activation, I and B the gradient.
constexpr ValueKind MadeBy(Op op) {
  return op == Op::kForward ? ValueKind::kActivation : ValueKind::kGradient;
}

// The value that a SEND sends, a WAIT_SEND waits to have sent, or a RECV receives. Its stage is -1
// or past the last if the chain has no such stage.
constexpr Value MessageOf(const Part& part) {
  const bool forward =
      part.op == Op::kSendForward || part.op == Op::kWaitSendForward || part.op == Op::kRecvForward;
  const int from = !IsRecv(part.op) ? 0 : forward ? -1 : 1;
  return {forward ? ValueKind::kActivation : ValueKind::kGradient, part.stage + from,
          part.microbatch};
}

// Whether any rank waits for its messages: then none of them is free before.
inline bool HasWaitSend(const Schedule& schedule) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (IsWaitSend(action.first.op)) return true;
    }
  }
  return false;
}

// The RECV of a SEND or WAIT_SEND whose stage has a neighbor to send to.
constexpr Part ReceiveOf(const Part& part) {
  return MessageOf(part).kind == ValueKind::kActivation
             ? MakeAction(Op::kRecvForward, part.stage + 1, part.microbatch).first
             : MakeAction(Op::kRecvBackward, part.stage - 1, part.microbatch).first;
}

}  // namespace penstock
