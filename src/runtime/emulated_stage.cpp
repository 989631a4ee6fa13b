#include "runtime/emulated_stage.h"

#include <sys/prctl.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// By default the kernel may end a thread's sleeps 50 us late, to wake it with others.
void AskForExactSleeps() {
  thread_local const bool asked = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
  static_cast<void>(asked);
}

void SleepUntil(Clock::time_point deadline, std::chrono::nanoseconds spin) {
  AskForExactSleeps();
  if (deadline - spin > Clock::now()) std::this_thread::sleep_until(deadline - spin);
  while (Clock::now() < deadline) {
  }
}

// What an emulated message carries: who made it, and whether it is on its way.
struct Payload {
  ValueKind kind;
  int stage;
  int row;
  std::int64_t step = -1;
  std::atomic<bool> in_flight{false};
};

void ReleasePayload(void* owner) { static_cast<Payload*>(owner)->in_flight.store(false); }

class EmulatedStage final : public Stage {
 public:
  EmulatedStage(const Schedule& schedule, int stage, const Costs& costs,
                const EmulationOptions& options)
      : stage_(stage),
        previous_(schedule.placement.previous(stage)),
        next_(schedule.placement.next(stage)),
        costs_(costs),
        options_(options),
        rows_(static_cast<std::size_t>(schedule.rows())),
        payloads_(std::make_unique<Payload[]>(2 * rows_)) {
    for (std::size_t row = 0; row < rows_; ++row) {
      SetPayload(payloads_[row], ValueKind::kActivation, static_cast<int>(row));
      SetPayload(payloads_[rows_ + row], ValueKind::kGradient, static_cast<int>(row));
    }
  }

  void BeginStep(std::int64_t step) override { step_ = step; }

  void Forward(int row, Message input, Outlet& output) override {
    RunAlone({Op::kForward, row, std::move(input), output});
  }
  void Backward(int row, Message output_gradient, Outlet& input_gradient) override {
    RunAlone({Op::kBackward, row, std::move(output_gradient), input_gradient});
  }
  void BackwardInput(int row, Message output_gradient, Outlet& input_gradient) override {
    RunAlone({Op::kBackwardInput, row, std::move(output_gradient), input_gradient});
  }
  void BackwardWeight(int row) override {
    Compute(MakeAction(Op::kBackwardWeight, stage_, row));
    held_ -= Own().activation_after_i;
  }

  // Both take the time of the pair, and send what they make at its end.
  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override {
    auto& second_stage = dynamic_cast<EmulatedStage&>(other);
    Accept(first);
    second_stage.Accept(second);
    Compute(penstock::Overlap(MakeAction(first.op, stage_, first.row),
                              MakeAction(second.op, second_stage.stage_, second.row)));
    Finish(first);
    const std::int64_t held = ActivationBytes();
    second_stage.Finish(second);
    return held;
  }

  void Step() override {}

  std::int64_t ActivationBytes() const override {
    return std::llround(held_ * options_.activation_bytes);
  }

 private:
  const StageCosts& Own() const { return costs_.stages[static_cast<std::size_t>(stage_)]; }

  void SetPayload(Payload& payload, ValueKind kind, int row) const {
    payload.kind = kind;
    payload.stage = stage_;
    payload.row = row;
  }

  void RunAlone(const StageCall& call) {
    Accept(call);
    Compute(MakeAction(call.op, stage_, call.row));
    Finish(call);
  }

  void Accept(const StageCall& call) const {
    if (call.op == Op::kForward) Expect(call.input, ValueKind::kActivation, previous_, call.row);
    if (MakesInputGradient(call.op)) Expect(call.input, ValueKind::kGradient, next_, call.row);
  }

  void Compute(const Action& action) const {
    const double units = costs_.Duration(action);
    const auto start = Clock::now();
    SleepUntil(start + std::chrono::duration_cast<Clock::duration>(units * options_.unit),
               options_.spin);
  }

  void Expect(const Message& message, ValueKind kind, int stage, int row) const {
    PENSTOCK_CHECK(message.empty() == (stage < 0), "a message is missing or not expected");
    if (message.empty()) return;
    const Payload& got = *static_cast<const Payload*>(message.data());
    PENSTOCK_CHECK(got.kind == kind && got.stage == stage && got.row == row && got.step == step_,
                   "a wrong message arrived: stage {}, row {}, step {}", got.stage, got.row,
                   got.step);
  }

  void Finish(const StageCall& call) {
    const auto row = static_cast<std::size_t>(call.row);
    if (call.op == Op::kForward) {
      held_ += Own().activation;
      if (next_ >= 0) Send(payloads_[row], call.output);
      return;
    }
    if (call.op != Op::kBackwardInput) held_ -= Own().activation_after_i;
    if (!MakesInputGradient(call.op)) return;
    held_ -= Own().activation - Own().activation_after_i;
    if (previous_ >= 0) Send(payloads_[rows_ + row], call.output);
  }

  void Send(Payload& payload, Outlet& outlet) const {
    PENSTOCK_CHECK(!payload.in_flight.exchange(true), "the last step's message was not taken");
    payload.step = step_;
    outlet.Send(Message(&payload, sizeof(Payload), &payload, ReleasePayload));
  }

  int stage_;
  int previous_;
  int next_;
  Costs costs_;
  EmulationOptions options_;
  std::size_t rows_;
  std::unique_ptr<Payload[]> payloads_;  // activations by row, then gradients
  std::int64_t step_ = -1;
  double held_ = 0;  // in units of cost memory
};

}  // namespace

std::vector<std::unique_ptr<Stage>> MakeEmulatedStages(const Schedule& schedule, const Costs& costs,
                                                       const EmulationOptions& options) {
  std::vector<std::unique_ptr<Stage>> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    stages.push_back(std::make_unique<EmulatedStage>(schedule, stage, costs, options));
  }
  return stages;
}

EmulatedLink::EmulatedLink(const MessageMap& messages, Transport& inner,
                           std::chrono::nanoseconds latency)
    : inner_(inner),
      latency_(latency),
      arrival_ns_(static_cast<std::size_t>(messages.slots())),
      crosses_(static_cast<std::size_t>(messages.slots())) {
  for (int slot = 0; slot < messages.slots(); ++slot) {
    crosses_[static_cast<std::size_t>(slot)] =
        static_cast<char>(messages.from_rank(slot) != messages.to_rank(slot));
  }
}

void EmulatedLink::Send(int slot, std::int64_t round, Message message) {
  const auto index = static_cast<std::size_t>(slot);
  if (crosses_[index] != 0) arrival_ns_[index] = NowNs() + latency_.count();
  inner_.Send(slot, round, std::move(message));
}

bool EmulatedLink::Receive(int slot, std::int64_t round, Message& message) {
  if (!inner_.Receive(slot, round, message)) return false;
  const auto index = static_cast<std::size_t>(slot);
  SleepUntil(Clock::time_point(std::chrono::nanoseconds(arrival_ns_[index])),
             EmulationOptions().spin);
  return !aborted();
}

}  // namespace penstock
