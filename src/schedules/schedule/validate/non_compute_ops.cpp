// Where UNSHARD, RESHARD, REDUCE_GRAD, OFFLOAD, RELOAD, RECOMPUTE, STEP and the waits are allowed.
#include <algorithm>

#include "base/index.h"
#include "schedule/validate/state.h"

namespace penstock::validation {

RareOps::RareOps(const Schedule& schedule, const Usage& usage, std::size_t indices)
    : usage_(usage),
      weights_(schedule.weights),
      chain_length_(schedule.placement.chain_length()),
      slices_(schedule.slices),
      indices_(indices),
      indices_per_batch_(indices / Index(schedule.steps)),
      indices_per_update_(weights_ == WeightPolicy::kStashed ? Index(slices_) : indices_per_batch_),
      updates_(indices / indices_per_update_) {
  if (!usage.rare) return;
  const std::size_t stages = schedule.stages();
  unsharded_.resize(stages);
  moves_.resize(stages * indices_);
  ended_.resize(stages * updates_);
  steps_.resize(stages);
  reduced_.resize(stages);
  waited_.resize(stages);
  shares_ = GradientShares(schedule);
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    backwards_.push_back(schedule.backward_of(stage));
  }
}

std::string RareOps::Check(const Part& part, std::uint8_t history) {
  switch (part.op) {
    case Op::kForward:
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
    case Op::kBackward:
      return CheckCompute(part);
    case Op::kUnshard:
      return unsharded_[part.stage] != 0 ? "the stage is already unsharded" : "";
    case Op::kReshard:
      return unsharded_[part.stage] != 0 ? "" : "the stage is not unsharded";
    case Op::kWaitSendForward:
    case Op::kWaitSendBackward:
      return CheckWait(part, history);
    case Op::kReduceGrad:
    case Op::kStep:
      return CheckUpdate(part);
    case Op::kWaitReduceGrad:
      return waited_[part.stage] < reduced_[part.stage] ? "" : "its REDUCE_GRAD has not run";
    case Op::kOffload:
    case Op::kReload:
    case Op::kRecompute:
      return CheckMove(part, history);
    default:
      return "";
  }
}

// Checks that the weights of the part's stage are gathered, if the schedule shards any.
std::string RareOps::CheckWeights(const Part& part) const {
  if (!usage_.unshard || unsharded_[part.stage] != 0) return "";
  return fmt::format("stage {} is not unsharded; add {}UNSHARD before it", part.stage, part.stage);
}

std::string RareOps::CheckCompute(const Part& part) const {
  if (std::string reason = CheckWeights(part); !reason.empty()) return reason;
  const std::uint8_t moves = moves_[Key(part)];
  if (MakesInputGradient(part.op) && (moves & kOffloaded) != 0 && (moves & kReloaded) == 0) {
    return fmt::format("its activations are offloaded; add {}RELOAD{} before it", part.stage,
                       part.microbatch);
  }
  return CheckVersion(part);
}

// Checks that the version of the weights that a forward or backward reads exists, and still exists.
std::string RareOps::CheckVersion(const Part& part) const {
  if (!usage_.step || shares_[part.stage] == 0) return "";  // frozen weights have one version
  const std::size_t n = part.microbatch;
  const auto batch = static_cast<std::int64_t>(n / indices_per_batch_);
  const std::int64_t steps = steps_[part.stage];
  std::int64_t least = 0, most = 0;
  switch (weights_) {
    case WeightPolicy::kFlush:
      least = most = batch;
      break;
    case WeightPolicy::kStashed: {
      // Its version is kept from F on, so newer ones do not matter.
      const std::int64_t ahead = chain_length_ - 1 - part.stage % chain_length_;
      least =
          std::max<std::int64_t>(0, static_cast<std::int64_t>(UpdateOf(part.microbatch)) - ahead);
      most = static_cast<std::int64_t>(updates_);
      break;
    }
    case WeightPolicy::kDoubleBuffered:
      // Batch t reads W(t-1). After j STEPs W(j-1) and W(j) exist.
      least = std::max<std::int64_t>(0, batch - 1);
      most = std::max<std::int64_t>(1, batch);
      break;
  }
  if (steps >= least && steps <= most) return "";
  return fmt::format(
      "stage {} has run {} STEPs, but the weights that it reads exist after {} to {}", part.stage,
      steps, least, most);
}

std::string RareOps::CheckMove(const Part& part, std::uint8_t history) const {
  const std::uint8_t moves = moves_[Key(part)];
  if (part.op == Op::kRecompute) {
    if (std::string reason = CheckWeights(part); !reason.empty()) return reason;
  }
  if ((history & kForwardBit) == 0) return "its forward has not run";
  if ((history & (kInputGradientBits | kEndBits)) != 0) return "its backward has already run";
  if (part.op == Op::kOffload) {
    if ((moves & kOffloaded) != 0) return "it is already offloaded";
    if ((moves & kRecomputed) != 0) return "it is already recomputed";
  }
  if (part.op == Op::kReload) {
    if ((moves & kOffloaded) == 0) return "it is not offloaded";
    if ((moves & kReloaded) != 0) return "it is already reloaded";
  }
  if (part.op == Op::kRecompute) {
    if ((moves & kRecomputed) != 0) return "it is already recomputed";
    if ((moves & kOffloaded) != 0 && (moves & kReloaded) == 0) return "its input is offloaded";
  }
  return "";
}

std::string RareOps::CheckWait(const Part& part, std::uint8_t history) const {
  const bool forward = part.op == Op::kWaitSendForward;
  if ((history & Bit(forward ? Op::kSendForward : Op::kSendBackward)) == 0) {
    return "its SEND has not run";
  }
  const bool waited = (moves_[Key(part)] & (forward ? kWaitedForward : kWaitedBackward)) != 0;
  return waited ? "it has already run" : "";
}

std::string RareOps::CheckUpdate(const Part& part) const {
  const std::size_t stage = part.stage;
  const bool step = part.op == Op::kStep;
  const std::int32_t update = step ? steps_[stage] : reduced_[stage];
  if (Index(update) >= updates_) {
    return fmt::format("stage {} has already run all {} updates", stage, updates_);
  }
  const std::size_t ended = ended_[stage * updates_ + Index(update)];
  const std::size_t needed = indices_per_update_ * Index(shares_[stage]);
  if (ended < needed) {
    return fmt::format("{} of its {} weight gradients are not computed yet", needed - ended,
                       needed);
  }
  if (!step && steps_[stage] > update) return "the STEP that reads it has already run";
  if (step && usage_.reduce && reduced_[stage] <= update) {
    return fmt::format("its REDUCE_GRAD has not run; add {}REDUCE_GRAD before it", stage);
  }
  return "";
}

void RareOps::Note(const Part& part) {
  const std::size_t stage = part.stage;
  if (AddsGradients(backwards_[stage], part.op)) {
    ++ended_[stage * updates_ + UpdateOf(part.microbatch)];
  }
  switch (part.op) {
    case Op::kUnshard:
      unsharded_[stage] = 1;
      break;
    case Op::kReshard:
      unsharded_[stage] = 0;
      break;
    case Op::kReduceGrad:
      ++reduced_[stage];
      break;
    case Op::kWaitReduceGrad:
      ++waited_[stage];
      break;
    case Op::kStep:
      ++steps_[stage];
      break;
    case Op::kOffload:
      moves_[Key(part)] |= kOffloaded;
      break;
    case Op::kReload:
      moves_[Key(part)] |= kReloaded;
      break;
    case Op::kRecompute:
      moves_[Key(part)] |= kRecomputed;
      break;
    case Op::kWaitSendForward:
      moves_[Key(part)] |= kWaitedForward;
      break;
    case Op::kWaitSendBackward:
      moves_[Key(part)] |= kWaitedBackward;
      break;
    default:
      break;
  }
}

bool RareOps::GradientsReady(int stage, int update) const {
  const std::size_t s = stage;
  const std::size_t u = update;
  if (u >= updates_) return false;
  const bool complete = Index(ended_[s * updates_ + u]) >= indices_per_update_ * Index(shares_[s]);
  return complete && (!usage_.reduce || reduced_[s] > update);
}

int RareOps::MissingSteps(int stage) const {
  if (!usage_.step || shares_[Index(stage)] == 0) return 0;
  return static_cast<int>(updates_) - steps_[stage];
}

int RareOps::MissingReductions(int stage) const {
  if (!usage_.reduce || shares_[Index(stage)] == 0) return 0;
  return static_cast<int>(updates_) - reduced_[stage];
}

int RareOps::MissingReductionWaits(int stage) const {
  return usage_.wait_reduce ? reduced_[stage] - waited_[stage] : 0;
}

bool RareOps::LacksWait(Op send, int stage, std::size_t microbatch) const {
  if (!usage_.wait_send) return false;
  const std::uint8_t moves = moves_[Index(stage) * indices_ + microbatch];
  return (moves & (send == Op::kSendForward ? kWaitedForward : kWaitedBackward)) == 0;
}

}  // namespace penstock::validation
