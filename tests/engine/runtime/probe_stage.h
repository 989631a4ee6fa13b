// ProbeStage: records every call and checks that each message has the right producer, and that it
// was not copied unless it arrived as bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/index.h"
#include "runtime/program.h"
#include "runtime/stage.h"
#include "schedule/action.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"
#include "schedule/text/text.h"

namespace penstock {

struct ProbePayload {
  ValueKind kind;
  int stage;
  int microbatch;
  std::int64_t step;
  const ProbePayload* self;  // differs from the payload's address once it has been copied
};

// The number of payloads of all probes that are not released yet.
inline std::atomic<int> live_payloads{0};

inline void ReleasePayload(void* owner) {
  delete static_cast<ProbePayload*>(owner);
  live_payloads.fetch_sub(1);
}

inline Message MakePayload(ValueKind kind, int stage, int microbatch, std::int64_t step) {
  auto* payload = new ProbePayload{kind, stage, microbatch, step, nullptr};
  payload->self = payload;
  live_payloads.fetch_add(1);
  return {payload, sizeof(ProbePayload), payload, ReleasePayload};
}

// The calls of one rank, in order. The stages of the rank share it.
struct ProbeLog {
  std::vector<Part> calls;
  int pairs = 0;  // calls of Overlap; each adds two calls
};

class ProbeStage : public Stage {
 public:
  // Runs at the start of each call, on the rank's thread, and may delay it or throw.
  using Hook = std::function<void(const Part& part, std::int64_t step)>;

  ProbeStage(const Placement& placement, int stage, ProbeLog* log, Hook hook)
      : stage_(stage),
        previous_(placement.previous(stage)),
        next_(placement.next(stage)),
        log_(log),
        hook_(std::move(hook)) {}

  void BeginStep(std::int64_t step) override {
    if (step_ >= 0 && step != step_ + 1) throw std::runtime_error("steps are not in order");
    step_ = step;
  }
  void Forward(int microbatch, Message input, Outlet& output) override {
    Enter(Op::kForward, microbatch);
    Expect(input, ValueKind::kActivation, previous_, microbatch);
    ++held_;
    if (next_ >= 0) output.Send(MakePayload(ValueKind::kActivation, stage_, microbatch, step_));
  }
  void Backward(int microbatch, Message gradient, Outlet& output) override {
    Enter(Op::kBackward, microbatch);
    Expect(gradient, ValueKind::kGradient, next_, microbatch);
    --held_;
    if (previous_ >= 0) output.Send(MakePayload(ValueKind::kGradient, stage_, microbatch, step_));
  }
  void BackwardInput(int microbatch, Message gradient, Outlet& output) override {
    Enter(Op::kBackwardInput, microbatch);
    Expect(gradient, ValueKind::kGradient, next_, microbatch);
    if (previous_ >= 0) output.Send(MakePayload(ValueKind::kGradient, stage_, microbatch, step_));
  }
  void BackwardWeight(int microbatch) override {
    Enter(Op::kBackwardWeight, microbatch);
    --held_;
  }
  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override {
    ++log_->pairs;
    return Stage::Overlap(std::move(first), other, std::move(second));
  }
  void Step() override { Enter(Op::kStep, -1); }
  std::int64_t ActivationBytes() const override { return held_ * 100; }

 private:
  void Enter(Op op, int microbatch) {
    const Part part = MakeAction(op, stage_, microbatch).first;
    log_->calls.push_back(part);
    if (hook_) hook_(part, step_);
  }

  void Expect(const Message& message, ValueKind kind, int stage, int microbatch) const {
    if (message.empty() != (stage < 0)) throw std::runtime_error("message missing or unexpected");
    if (stage < 0) return;
    const auto* payload = static_cast<const ProbePayload*>(message.data());
    const bool by_reference = message.release() == ReleasePayload;
    if (by_reference && payload->self != payload) throw std::runtime_error("message was copied");
    if (payload->kind != kind || payload->stage != stage || payload->microbatch != microbatch ||
        payload->step != step_) {
      throw std::runtime_error("wrong message");
    }
  }

  int stage_;
  int previous_;
  int next_;
  ProbeLog* log_;
  Hook hook_;
  std::int64_t step_ = -1;
  std::int64_t held_ = 0;
};

// Returns the calls that the rank's stages must receive in `steps` steps.
inline std::vector<Part> ExpectedCalls(const Schedule& schedule, int rank, int steps) {
  const Program program = MakeProgram(schedule, rank).value();
  std::vector<Part> calls;
  for (int step = 0; step < steps; ++step) {
    for (const ProgramEntry& entry : program) calls.push_back(entry.part);
  }
  return calls;
}

// One probe per stage of the schedule and one log per rank.
struct Probes {
  explicit Probes(const Schedule& schedule, const ProbeStage::Hook& hook = nullptr)
      : logs(Index(schedule.ranks())) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const std::size_t rank = schedule.placement.rank_of(stage);
      owned.push_back(std::make_unique<ProbeStage>(schedule.placement, stage, &logs[rank], hook));
      stages.push_back(owned.back().get());
    }
  }

  std::vector<ProbeLog> logs;
  std::vector<std::unique_ptr<Stage>> owned;
  std::vector<Stage*> stages;
};

}  // namespace penstock
