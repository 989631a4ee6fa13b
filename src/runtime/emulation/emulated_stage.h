// EmulatedStage: a stage that takes its costs' time on its rank's device. Private to the emulation.
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

// What an emulated message carries: who made it, when it can be used, and whether it is on its way.
struct EmulatedPayload {
  ValueKind kind;
  int stage;
  int row;
  std::int64_t step = -1;
  std::int64_t ready = 0;
  std::atomic<bool> in_flight{false};

  static void Release(void* owner) { static_cast<EmulatedPayload*>(owner)->in_flight.store(false); }
  // Null where the message is none of ours.
  static EmulatedPayload* Of(const Message& message) {
    return message.release() == Release ? static_cast<EmulatedPayload*>(message.data()) : nullptr;
  }
};

class EmulatedStage final : public Stage {
 public:
  // What the stages of a run share. All must outlive them.
  struct Shared {
    const PriceList* prices;
    GradientGate* gate;
    std::atomic<std::int64_t>* origin;  // when the run began; 0 before
  };

  // `device` is its rank's, and must outlive it.
  EmulatedStage(const Shared& shared, EmulatedDevice& device, int stage);

  void BeginStep(std::int64_t step) override;
  void Forward(int row, Message input, Outlet& output) override;
  void Backward(int row, Message output_gradient, Outlet& input_gradient) override;
  void BackwardInput(int row, Message output_gradient, Outlet& input_gradient) override;
  void BackwardWeight(int row) override;
  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override;
  void Step() override;
  bool DoesSideWork(Op) const override { return true; }
  void DoSideWork(Op op, int row) override;
  bool Keeps(WeightPolicy) const override { return true; }
  [[nodiscard]] bool Await(Op op, int row) override;
  std::int64_t ActivationBytes() const override;

 private:
  Part PartOf(Op op, int row) const;
  // Runs the part on the device, and returns its end.
  std::int64_t Compute(const Part& part);
  void RunAlone(const StageCall& call);
  void Begin(const Part& part);
  void End(const Part& part, std::int64_t end);
  void Hold(std::int64_t time, double amount);
  void Move(const Part& part);
  void Collect(const Part& part);

  // Throws where the call's input is not what it should be.
  void Expect(const StageCall& call) const;
  // Sends what the part makes, if anything.
  void Send(const Part& part, std::int64_t ready, Outlet& outlet);

  const PriceList& prices_;
  GradientGate& gate_;
  std::atomic<std::int64_t>& origin_;
  EmulatedDevice& device_;
  const int stage_;
  const int previous_;
  const int next_;
  const std::size_t rows_;
  std::unique_ptr<EmulatedPayload[]> payloads_;  // activations by row, then gradients
  std::int64_t step_ = -1;
  std::int64_t round_ = -1;
  int reductions_ = 0;  // of this round, as the next
  int updates_ = 0;
  std::int64_t unsharded_ = 0;       // when its last UNSHARD ends
  std::int64_t reduced_ = 0;         // and its last REDUCE_GRAD
  std::vector<std::int64_t> moved_;  // by row: when its OFFLOAD ends, then its RELOAD
  double held_ = 0;
};

}  // namespace penstock
