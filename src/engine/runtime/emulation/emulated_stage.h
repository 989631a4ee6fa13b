// EmulatedStage: a stage that occupies its rank's device for the time that its costs say. Private
// to the emulation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/emulation/device.h"
#include "runtime/emulation/gradient_gate.h"
#include "runtime/emulation/price_list.h"
#include "runtime/stage.h"
#include "schedule/deps.h"

namespace penstock {

// The payload of an emulated message: its producer, when it can be used, and whether it is in
// flight.
struct EmulatedPayload {
  ValueKind kind;
  int stage;
  int microbatch;
  std::int64_t step = -1;
  std::int64_t ready = 0;
  std::atomic<bool> in_flight{false};

  static void Release(void* owner) { static_cast<EmulatedPayload*>(owner)->in_flight.store(false); }
  // Returns null if the message is not from an EmulatedStage.
  static EmulatedPayload* Of(const Message& message) {
    return message.release() == Release ? static_cast<EmulatedPayload*>(message.data()) : nullptr;
  }
};

class EmulatedStage final : public Stage {
 public:
  // The state that the stages of a run share. All of it must outlive them.
  struct Shared {
    const PriceList* prices;
    GradientGate* gate;
    std::atomic<std::int64_t>* origin;  // the start of the run; 0 before it
  };

  // `device` belongs to the stage's rank and must outlive the stage.
  EmulatedStage(const Shared& shared, EmulatedDevice& device, int stage);

  void BeginStep(std::int64_t step) override;
  void Forward(int microbatch, Message input, Outlet& output) override;
  void Backward(int microbatch, Message output_gradient, Outlet& input_gradient) override;
  void BackwardInput(int microbatch, Message output_gradient, Outlet& input_gradient) override;
  void BackwardWeight(int microbatch) override;
  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override;
  void Step() override;
  bool DoesSideWork(Op) const override { return true; }
  void DoSideWork(Op op, int microbatch) override;
  bool Keeps(WeightPolicy) const override { return true; }
  [[nodiscard]] bool Await(Op op, int microbatch) override;
  std::int64_t ActivationBytes() const override;

 private:
  Part PartOf(Op op, int microbatch) const;
  // Runs the part on the device and returns its end.
  std::int64_t Compute(const Part& part);
  void RunAlone(const StageCall& call);
  void Begin(const Part& part);
  void End(const Part& part, std::int64_t end);
  void Allocate(std::int64_t time, double amount);
  void Move(const Part& part);
  void Collect(const Part& part);

  // Throws if the call has the wrong input.
  void Expect(const StageCall& call) const;
  // Sends the output of the part, if it has one.
  void Send(const Part& part, std::int64_t ready, Outlet& outlet);

  const PriceList& prices_;
  GradientGate& gate_;
  std::atomic<std::int64_t>& origin_;
  EmulatedDevice& device_;
  const int stage_;
  const int previous_;
  const int next_;
  const bool sends_gradient_;  // whether another stage reads its input gradient
  const std::size_t microbatches_;
  std::unique_ptr<EmulatedPayload[]> payloads_;  // activations by microbatch, then gradients
  std::int64_t step_ = -1;
  std::int64_t round_ = -1;
  int reductions_ = 0;               // reductions so far in this round
  int updates_ = 0;                  // updates so far in this round
  std::int64_t unsharded_ = 0;       // end of its last UNSHARD
  bool gathered_ = false;            // also from the previous step, without a RESHARD
  std::int64_t reduced_ = 0;         // end of its last REDUCE_GRAD
  std::vector<std::int64_t> moved_;  // by microbatch: end of its OFFLOAD, later of its RELOAD
  double activations_ = 0;
};

}  // namespace penstock
