// What the validator checks before it walks the lanes.
#include "base/index.h"
#include "schedule/untrained.h"
#include "schedule/validate/state.h"

namespace penstock::validation {

Usage Usage::Of(const Schedule& schedule) {
  Usage usage;
  std::uint32_t seen = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      seen |= action.first.op < Op::kNone ? 1U << static_cast<int>(action.first.op) : 0U;
      usage.parts += action.is_pair() ? 2 : 1;
    }
  }
  const auto has = [seen](Op op) { return (seen >> static_cast<int>(op) & 1U) != 0; };
  for (int op = 0; op < kOpCount; ++op) {
    usage.communication =
        usage.communication || (IsCommunication(static_cast<Op>(op)) && has(static_cast<Op>(op)));
  }
  for (const Op op :
       {Op::kEmbed, Op::kVocabularyInput, Op::kVocabularyWeight, Op::kEmbedGradient}) {
    usage.vocabulary = usage.vocabulary || has(op);
  }
  usage.unshard = has(Op::kUnshard);
  usage.reduce = has(Op::kReduceGrad);
  usage.wait_send = has(Op::kWaitSendForward) || has(Op::kWaitSendBackward);
  usage.wait_reduce = has(Op::kWaitReduceGrad);
  usage.step = has(Op::kStep) || schedule.weights != WeightPolicy::kFlush;
  usage.rare = usage.step || seen >> static_cast<int>(Op::kWaitSendForward) != 0;
  return usage;
}

namespace {

std::string CheckVocabulary(const Schedule& schedule, const Usage& usage) {
  if (!schedule.vocabulary) {
    return usage.vocabulary ? "it has EMBED, S, T or EMBED_GRAD, but its vocabulary is not sharded"
                            : "";
  }
  if (schedule.placement.replicas() != 1 || schedule.slices != 1 || schedule.steps != 1 ||
      schedule.weights != WeightPolicy::kFlush) {
    return "its vocabulary is sharded over the ranks, which needs one chain, whole sequences, one "
           "step and a flush";
  }
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (!schedule.placement.stages_of(rank).empty()) continue;
    return fmt::format("rank {} has no stage, but a share of the vocabulary", rank);
  }
  return "";
}

std::string CheckBackward(const Schedule& schedule) {
  if (!IsUntrained(schedule)) return "";
  const auto length = Index(schedule.placement.chain_length());
  if (schedule.backward.size() != length) {
    return fmt::format("it says what {} stages run of the backward, but has {}",
                       schedule.backward.size(), length);
  }
  if (schedule.vocabulary) return "its ranks share a vocabulary, but it has untrained stages";
  bool trains_before = false;
  for (std::size_t stage = 0; stage < length; ++stage) {
    const StageBackward backward = schedule.backward[stage];
    trains_before = trains_before || HasGradients(backward);
    const bool has_backward = backward != StageBackward::kNone;
    if (has_backward == trains_before) continue;
    return fmt::format("stage {} {} a backward, but {} trained", stage,
                       has_backward ? "has" : "lacks",
                       has_backward ? "nothing up to it is" : "a stage before it is");
  }
  return "";
}

}  // namespace

std::string CheckShape(const Schedule& schedule, const Usage& usage) {
  const Placement& placement = schedule.placement;
  if (placement.ranks() == 0 || placement.stages() == 0) return "it has no stages";
  if (schedule.lanes.size() != Index(placement.ranks())) {
    return fmt::format("it has {} lanes for {} ranks", schedule.lanes.size(), placement.ranks());
  }
  if (schedule.microbatches < 1 || schedule.slices < 1 || schedule.steps < 1) {
    return fmt::format("{} microbatches, {} slices and {} steps: each must be at least 1",
                       schedule.microbatches, schedule.slices, schedule.steps);
  }
  if (schedule.microbatches % placement.replicas() != 0) {
    return fmt::format("{} microbatches do not divide evenly among {} replicas",
                       schedule.microbatches, placement.replicas());
  }
  if (placement.stages() > kMaxStages) return fmt::format("more than {} stages", kMaxStages);
  if (std::string reason = CheckVocabulary(schedule, usage); !reason.empty()) return reason;
  if (std::string reason = CheckBackward(schedule); !reason.empty()) return reason;
  // Each microbatch index needs two parts on each stage with a backward, and one on the others.
  // Without all of them no table is worth its memory.
  const int least_parts = IsUntrained(schedule) ? 1 : 2;
  const std::int64_t most = usage.parts / least_parts / placement.stages();
  const std::int64_t microbatches = schedule.microbatches / placement.replicas();
  if (microbatches > most / schedule.slices / schedule.steps) {
    const std::int64_t slack = (std::int64_t{1} << 20) / placement.stages() + most;
    if (microbatches > slack / schedule.slices / schedule.steps) {
      return fmt::format("{} microbatches on {} stages need many more actions than its {}",
                         schedule.microbatches, placement.stages(), usage.parts);
    }
  }
  return "";
}

}  // namespace penstock::validation
