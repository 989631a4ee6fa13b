#include "runtime/emulation/emulated_stage.h"

#include <algorithm>
#include <utility>

#include "base/index.h"

namespace penstock {

EmulatedStage::EmulatedStage(const Shared& shared, EmulatedDevice& device, int stage)
    : prices_(*shared.prices),
      gate_(*shared.gate),
      origin_(*shared.origin),
      device_(device),
      stage_(stage),
      previous_(prices_.schedule().placement.previous(stage)),
      next_(prices_.schedule().placement.next(stage)),
      sends_gradient_(ReaderOf(prices_.schedule(), ValueKind::kGradient, stage) >= 0),
      microbatches_(prices_.schedule().indices()),
      payloads_(std::make_unique<EmulatedPayload[]>(2 * microbatches_)),
      moved_(microbatches_) {
  for (std::size_t i = 0; i < 2 * microbatches_; ++i) {
    payloads_[i].kind = i < microbatches_ ? ValueKind::kActivation : ValueKind::kGradient;
    payloads_[i].stage = stage;
    payloads_[i].microbatch = static_cast<int>(i % microbatches_);
  }
}

void EmulatedStage::BeginStep(std::int64_t step) {
  // All devices start at the same time, whenever their threads do.
  std::int64_t none = 0;
  origin_.compare_exchange_strong(none, NowNanoseconds());
  device_.StartAt(origin_.load());
  step_ = step;
  ++round_;
  reductions_ = 0;
  updates_ = 0;
}

void EmulatedStage::Forward(int microbatch, Message input, Outlet& output) {
  RunAlone({Op::kForward, microbatch, std::move(input), output});
}

void EmulatedStage::Backward(int microbatch, Message output_gradient, Outlet& input_gradient) {
  RunAlone({Op::kBackward, microbatch, std::move(output_gradient), input_gradient});
}

void EmulatedStage::BackwardInput(int microbatch, Message output_gradient, Outlet& input_gradient) {
  RunAlone({Op::kBackwardInput, microbatch, std::move(output_gradient), input_gradient});
}

void EmulatedStage::BackwardWeight(int microbatch) {
  Compute(PartOf(Op::kBackwardWeight, microbatch));
}

void EmulatedStage::RunAlone(const StageCall& call) {
  Expect(call);
  const Part part = PartOf(call.op, call.microbatch);
  Send(part, Compute(part), call.output);
}

// Both parts start together, take the time of the pair, and send their outputs at its end.
std::int64_t EmulatedStage::Overlap(StageCall first, Stage& other, StageCall second) {
  auto& second_stage = dynamic_cast<EmulatedStage&>(other);
  Expect(first);
  second_stage.Expect(second);
  const Part first_part = PartOf(first.op, first.microbatch);
  const Part second_part = second_stage.PartOf(second.op, second.microbatch);
  Begin(first_part);
  second_stage.Begin(second_part);
  const std::int64_t both = ActivationBytes();
  const std::int64_t end = device_.Run(prices_.Duration({first_part, second_part}));
  End(first_part, end);
  const std::int64_t between = &other == this ? both : ActivationBytes();
  second_stage.End(second_part, end);
  Send(first_part, end, first.output);
  second_stage.Send(second_part, end, second.output);
  return between;
}

void EmulatedStage::Step() {
  ++updates_;
  Compute(PartOf(Op::kStep, -1));
}

bool EmulatedStage::Await(Op op, int microbatch) {
  if (!OccupiesRank(op)) return true;
  if (op == Op::kStep) {
    std::int64_t ready = reduced_;
    if (!gate_.Wait(stage_, round_, updates_, ready)) return false;
    device_.NotBefore(ready);
  } else {
    device_.NotBefore(unsharded_);
    if (MakesInputGradient(op) || op == Op::kRecompute) device_.NotBefore(moved_[microbatch]);
  }
  return device_.AwaitStart();
}

void EmulatedStage::DoSideWork(Op op, int microbatch) {
  const Part part = PartOf(op, microbatch);
  if (op == Op::kRecompute) {
    Compute(part);
  } else if (op == Op::kOffload || op == Op::kReload) {
    Move(part);
  } else {
    Collect(part);
  }
}

std::int64_t EmulatedStage::ActivationBytes() const { return prices_.Bytes(activations_); }

Part EmulatedStage::PartOf(Op op, int microbatch) const {
  return MakeAction(op, stage_, microbatch).first;
}

std::int64_t EmulatedStage::Compute(const Part& part) {
  Begin(part);
  const std::int64_t end = device_.Run(prices_.Duration({part, {}}));
  End(part, end);
  return end;
}

void EmulatedStage::Begin(const Part& part) {
  const std::int64_t start = device_.NextStart();
  if (part.op == Op::kForward) Allocate(start, prices_.Saved(part));
  if (part.op == Op::kRecompute) Allocate(start, prices_.Recomputed(part));
}

void EmulatedStage::End(const Part& part, std::int64_t end) {
  Allocate(end, -prices_.Freed(part));
  const StageBackward backward = prices_.schedule().backward_of(stage_);
  if (AddsGradients(backward, part.op))
    gate_.Complete(stage_, prices_.UpdateOf(part.microbatch), end);
}

void EmulatedStage::Allocate(std::int64_t time, double amount) {
  if (amount == 0) return;
  activations_ += amount;
  device_.Allocate(time, amount);
}

void EmulatedStage::Move(const Part& part) {
  std::int64_t& moved = moved_[part.microbatch];
  const std::int64_t duration = prices_.TransferTime(part);
  if (part.op == Op::kOffload) {
    moved = device_.Carry(EmulatedDevice::kOffloads, device_.clock(), duration).end;
    Allocate(moved, -prices_.Saved(part));
    return;
  }
  // An offload transfer must complete before its reload can start.
  const std::int64_t earliest = std::max(device_.clock(), moved);
  const auto [start, end] = device_.Carry(EmulatedDevice::kReloads, earliest, duration);
  moved = end;
  Allocate(start, prices_.Saved(part));
}

// Gathered weights are not activations; only the device accounts for them.
void EmulatedStage::Collect(const Part& part) {
  const double gathered = prices_.Gathered(stage_);
  if (part.op == Op::kReshard) {
    device_.Allocate(std::max(device_.clock(), unsharded_), -gathered);
    gathered_ = false;
    return;
  }
  const auto [start, end] =
      device_.Carry(EmulatedDevice::kCollectives, device_.clock(), prices_.TransferTime(part));
  if (part.op == Op::kUnshard) {
    unsharded_ = end;
    if (!std::exchange(gathered_, true)) device_.Allocate(start, gathered);
    return;
  }
  reduced_ = end;
  gate_.Complete(stage_, reductions_++, end);
}

void EmulatedStage::Expect(const StageCall& call) const {
  const bool forward = call.op == Op::kForward;
  const ValueKind kind = forward ? ValueKind::kActivation : ValueKind::kGradient;
  const int stage = forward ? previous_ : MakesInputGradient(call.op) ? next_ : -1;
  PENSTOCK_CHECK(call.input.empty() == (stage < 0), "a message is missing or unexpected");
  if (stage < 0) return;
  const auto& got = *static_cast<const EmulatedPayload*>(call.input.data());
  PENSTOCK_CHECK(got.kind == kind && got.stage == stage && got.microbatch == call.microbatch &&
                     got.step == step_,
                 "a wrong message arrived: stage {}, microbatch {}, step {}", got.stage,
                 got.microbatch, got.step);
}

void EmulatedStage::Send(const Part& part, std::int64_t ready, Outlet& outlet) {
  const bool forward = part.op == Op::kForward;
  if (!forward && !MakesInputGradient(part.op)) return;
  if (forward ? next_ < 0 : !sends_gradient_) return;
  EmulatedPayload& payload = payloads_[(forward ? 0 : microbatches_) + Index(part.microbatch)];
  PENSTOCK_CHECK(!payload.in_flight.exchange(true),
                 "the message of the previous step was not received");
  payload.step = step_;
  payload.ready = ready;
  outlet.Send(Message(&payload, sizeof(payload), &payload, EmulatedPayload::Release));
}

}  // namespace penstock
