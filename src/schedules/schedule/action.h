// Action: one thing that a rank executes, as 16 bytes of plain data.
//
// An action is one part, or an overlapped pair of two: a forward and a backward that share the
// device. It never changes once an algorithm or a pass has written it. Times are kept in a
// Timeline.
#pragma once

#include <cstdint>
#include <type_traits>

namespace penstock {

enum class Op : std::uint8_t {
  kForward,           // F
  kBackwardInput,     // I: gradient of the stage's input
  kBackwardWeight,    // W: gradient of the stage's weights, after I
  kBackward,          // B: I and W in one
  kSendForward,       // SEND_F: sends the stage's output to the next stage
  kRecvForward,       // RECV_F: posts the receive of the stage's input
  kSendBackward,      // SEND_B: sends the stage's input gradient to the previous stage
  kRecvBackward,      // RECV_B: posts the receive of the stage's output gradient
  kWaitSendForward,   // WAIT_SEND_F: waits until the next stage has the output
  kWaitSendBackward,  // WAIT_SEND_B: waits until the previous stage has the input gradient
  kUnshard,           // UNSHARD: all-gather of the stage's weights
  kReshard,           // RESHARD: frees the gathered weights
  kReduceGrad,        // REDUCE_GRAD: reduce-scatter of the stage's gradients
  kWaitReduceGrad,    // WAIT_REDUCE_GRAD: waits until the stage's gradients are reduced
  kOffload,           // OFFLOAD: moves a microbatch's activations to the slower pool
  kReload,            // RELOAD: moves them back
  kRecompute,         // RECOMPUTE: computes a microbatch's activations again from its input
  kStep,              // STEP: optimizer update of the stage
  // Passes of the vocabulary, which is sharded over all ranks (vocabulary.h). Each belongs to a
  // rank, and has the number of the rank's first stage.
  kEmbed,             // EMBED: looks up the tokens in the rank's rows of the embedding
  kVocabularyInput,   // S: logits of the rank's rows, and their part of the gradient of its input
  kVocabularyWeight,  // T: gradient of the rank's rows of the head, after S of all ranks
  kEmbedGradient,     // EMBED_GRAD: gradient of the rank's rows of the embedding
  kNone,              // no second part
};
inline constexpr int kOpCount = static_cast<int>(Op::kNone);

constexpr bool IsCompute(Op op) { return op <= Op::kBackward; }
constexpr bool IsCommunication(Op op) {
  return op >= Op::kSendForward && op <= Op::kWaitSendBackward;
}
constexpr bool IsSend(Op op) { return op == Op::kSendForward || op == Op::kSendBackward; }
constexpr bool IsRecv(Op op) { return op == Op::kRecvForward || op == Op::kRecvBackward; }
constexpr bool IsWaitSend(Op op) {
  return op == Op::kWaitSendForward || op == Op::kWaitSendBackward;
}
// Whether the op only keeps its rank waiting.
constexpr bool IsWait(Op op) { return IsWaitSend(op) || op == Op::kWaitReduceGrad; }
constexpr bool IsVocabulary(Op op) { return op >= Op::kEmbed && op <= Op::kEmbedGradient; }
// Whether the op occupies the rank: compute, RECOMPUTE, STEP and passes of the vocabulary. The
// others take no time, or run concurrently with compute.
constexpr bool OccupiesRank(Op op) {
  return IsCompute(op) || op == Op::kRecompute || op == Op::kStep || IsVocabulary(op);
}
// Whether the rank's next action starts only after the op: it occupies the rank, or waits.
constexpr bool KeepsRank(Op op) { return OccupiesRank(op) || IsWait(op); }
// Whether the op computes the stage's input gradient, which the previous stage waits for.
constexpr bool MakesInputGradient(Op op) { return op == Op::kBackwardInput || op == Op::kBackward; }
// Whether the op is the last reader of a microbatch's activations on its stage.
constexpr bool EndsMicrobatch(Op op) { return op == Op::kBackwardWeight || op == Op::kBackward; }
// Whether the op adds a microbatch's share to the gradients of the stage's weights.
constexpr bool AddsGradients(Op op) {
  return EndsMicrobatch(op) || op == Op::kVocabularyWeight || op == Op::kEmbedGradient;
}
// Whether the op's cell carries a microbatch (UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD and
// STEP do not).
constexpr bool HasMicrobatch(Op op) {
  return (op < Op::kUnshard || op > Op::kWaitReduceGrad) && op != Op::kStep;
}

inline constexpr int kMaxStages = 65536;  // what Part::stage holds

// One op on one stage and microbatch.
struct Part {
  Op op = Op::kNone;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;  // index in its chain (see Schedule::indices); -1 if none

  friend constexpr bool operator==(const Part&, const Part&) = default;
};

struct Action {
  Part first;
  Part second;  // op kNone unless this is an overlapped pair

  constexpr bool is_pair() const { return second.op != Op::kNone; }
  friend constexpr bool operator==(const Action&, const Action&) = default;
};
static_assert(sizeof(Action) == 16 && std::is_trivially_copyable_v<Action>);

constexpr Action MakeAction(Op op, int stage, int microbatch = -1) {
  return {{op, static_cast<std::uint16_t>(stage), microbatch}, {}};
}
constexpr Action Forward(int stage, int microbatch) {
  return MakeAction(Op::kForward, stage, microbatch);
}
constexpr Action Backward(int stage, int microbatch) {
  return MakeAction(Op::kBackward, stage, microbatch);
}
constexpr Action BackwardInput(int stage, int microbatch) {
  return MakeAction(Op::kBackwardInput, stage, microbatch);
}
constexpr Action BackwardWeight(int stage, int microbatch) {
  return MakeAction(Op::kBackwardWeight, stage, microbatch);
}
// Returns a forward and a backward that run together, in the order of the text.
constexpr Action Overlap(Action first, Action second) { return {first.first, second.first}; }

// Whether the action computes (a pair always does).
constexpr bool IsCompute(const Action& action) { return IsCompute(action.first.op); }

// Calls visit(Part) for the action's one or two parts.
template <class Visit>
constexpr void ForEachPart(const Action& action, Visit&& visit) {
  visit(action.first);
  if (action.is_pair()) visit(action.second);
}

}  // namespace penstock
