#include "schedule/validate/missing.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/text/text.h"

namespace penstock::validation {
namespace {

// The SENDs and RECVs of each microbatch on a stage.
std::uint8_t TransfersOf(const StageEdges& edges) {
  std::uint8_t transfers = 0;
  if (edges.next_rank >= 0) transfers |= Bit(Op::kSendForward);
  if (edges.previous_rank >= 0) transfers |= Bit(Op::kRecvForward);
  if (edges.gradient_from >= 0) transfers |= Bit(Op::kRecvBackward);
  if (edges.gradient_to >= 0) transfers |= Bit(Op::kSendBackward);
  return transfers;
}

// The compute of each microbatch on a stage: as one B, and as halves.
struct ComputeBits {
  std::uint8_t whole = kForwardBit, halves = kForwardBit;
};
ComputeBits ComputeOf(StageBackward backward) {
  constexpr std::uint8_t kInput = kForwardBit | Bit(Op::kBackwardInput);
  switch (backward) {
    case StageBackward::kWhole:
      return {kForwardBit | Bit(Op::kBackward), kInput | Bit(Op::kBackwardWeight)};
    case StageBackward::kAdapters:
    case StageBackward::kInput:
      return {kInput, kInput};
    case StageBackward::kNone:
      break;
  }
  return {};
}

void ReportMissing(const Walked& walked, const Value& place, std::uint8_t bits,
                   std::uint8_t transfers, FaultList& faults) {
  const StageBackward backward = walked.schedule.backward_of(place.stage);
  const auto missing = [&](Op op) {
    faults.Add({walked.edges[Index(place.stage)].rank, -1,
                ToText(MakeAction(op, place.stage, place.microbatch).first),
                fmt::format("no rank runs it: stage {} lacks it for microbatch {}", place.stage,
                            place.microbatch)});
  };
  if ((bits & kForwardBit) == 0) missing(Op::kForward);
  if (backward != StageBackward::kWhole) {
    const bool lacks_input = (bits & Bit(Op::kBackwardInput)) == 0;
    if (lacks_input && backward != StageBackward::kNone) missing(Op::kBackwardInput);
  } else if ((bits & (kInputGradientBits | kEndBits)) == 0) {
    missing(Op::kBackward);
  } else if ((bits & Bit(Op::kBackward)) == 0) {
    if ((bits & Bit(Op::kBackwardInput)) == 0) missing(Op::kBackwardInput);
    if ((bits & Bit(Op::kBackwardWeight)) == 0) missing(Op::kBackwardWeight);
  }
  for (const Op op : {Op::kSendForward, Op::kRecvForward, Op::kSendBackward, Op::kRecvBackward}) {
    if ((transfers & ~bits & Bit(op)) != 0) missing(op);
  }
}

// Finds what a step of the stage lacks apart from its microbatches.
void FindMissingUpdates(const Walked& walked, int stage, FaultList& faults) {
  const RareOps& rare = walked.rare;
  const auto missing = [&](const char* op, int count) {
    if (count <= 0) return;
    faults.Add({walked.edges[Index(stage)].rank, -1, fmt::format("{}{}", stage, op),
                fmt::format("stage {} lacks {} of its {} {}s", stage, count, rare.updates(), op)});
  };
  missing("REDUCE_GRAD", rare.MissingReductions(stage));
  missing("WAIT_REDUCE_GRAD", rare.MissingReductionWaits(stage));
  missing("STEP", rare.MissingSteps(stage));
}

// Finds the SENDs that nothing waits for, where others are waited for.
void FindMissingWaits(const Walked& walked, int stage, FaultList& faults) {
  const StageEdges& edges = walked.edges[Index(stage)];
  const auto find = [&](Op send, Op wait, int peer) {
    const std::size_t indices = Index(walked.schedule.indices());
    for (std::size_t n = 0; peer >= 0 && n < indices && !faults.full(); ++n) {
      if (!walked.rare.LacksWait(send, stage, n)) continue;
      faults.Add({edges.rank, -1, ToText(MakeAction(wait, stage, static_cast<int>(n)).first),
                  "other messages are waited for, but not this one; add it after its SEND"});
    }
  };
  find(Op::kSendForward, Op::kWaitSendForward, edges.next_rank);
  find(Op::kSendBackward, Op::kWaitSendBackward, edges.gradient_to);
}

void FindMissingOf(const Walked& walked, int stage, FaultList& faults) {
  const StageEdges& edges = walked.edges[Index(stage)];
  const std::size_t indices = Index(walked.schedule.indices());
  const std::uint8_t transfers = walked.usage.communication ? TransfersOf(edges) : 0;
  const std::uint8_t* histories = walked.history.data() + Index(stage) * indices;
  const auto [whole, halves] = ComputeOf(walked.schedule.backward_of(stage));
  constexpr std::uint8_t kComputeBits = 0x0F;
  const bool nowhere = std::all_of(histories, histories + indices,
                                   [](std::uint8_t bits) { return (bits & kComputeBits) == 0; });
  if (nowhere) {
    faults.Add({edges.rank, -1, fmt::format("{}F0", stage),
                fmt::format("no rank computes stage {}", stage)});
    return;
  }
  for (std::size_t n = 0; n < indices && !faults.full(); ++n) {
    const std::uint8_t bits = histories[n];
    if (bits == (whole | transfers) || bits == (halves | transfers)) [[likely]]
      continue;
    const Value place = {ValueKind::kActivation, stage, static_cast<int>(n)};
    ReportMissing(walked, place, bits, transfers, faults);
  }
  if (walked.usage.wait_send) FindMissingWaits(walked, stage, faults);
  FindMissingUpdates(walked, stage, faults);
}

}  // namespace

void FindMissing(const Walked& walked, FaultList& faults) {
  for (int stage = 0; stage < walked.schedule.stages() && !faults.full(); ++stage) {
    FindMissingOf(walked, stage, faults);
  }
  walked.vocabulary.ForEachMissing([&](int rank, const Part& part) {
    faults.Add({rank, -1, ToText(part),
                fmt::format("rank {} lacks it for microbatch {}", rank, part.microbatch)});
    return !faults.full();
  });
}

}  // namespace penstock::validation
