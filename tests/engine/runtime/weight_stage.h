// WeightStage: a stage that trains one weight, so that the results of a step depend on the weight
// that each forward read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/stage.h"
#include "schedule/schedule.h"

namespace penstock {

inline Message MakeNumber(double value) {
  auto* number = new double(value);
  return {number, sizeof(double), number, [](void* owner) { delete static_cast<double*>(owner); }};
}

inline double TakeNumber(const Message& message) {
  if (message.bytes() != sizeof(double)) throw std::runtime_error("the message is not a number");
  return *static_cast<const double*>(message.data());
}

class WeightStage final : public Stage, public StageUpdate {
 public:
  // Returns a factor for the gradient of a step, to make it large or not finite.
  using Inject = std::function<double(int stage, std::int64_t step)>;

  WeightStage(const Schedule& schedule, int stage, Inject inject)
      : placement_(schedule.placement),
        stage_(stage),
        holders_(HoldersOf(schedule, placement_.model_stage(stage))),
        weight_(0.3 + 0.1 * holders_.front()),
        inject_(std::move(inject)),
        microbatches_(schedule.indices()),
        shared_(placement_.replicas()),
        of_holders_(holders_.size()) {}

  double weight() const { return weight_; }
  int undone() const { return undone_; }

  void BeginStep(std::int64_t step) override {
    for (const Microbatch& microbatch : microbatches_) {
      if (microbatch.held) throw std::runtime_error("a microbatch is still held");
    }
    step_ = step;
  }
  void Forward(int microbatch, Message input, Outlet& output) override {
    Microbatch& own = microbatches_[microbatch];
    if (own.held) throw std::runtime_error("forward twice");
    const bool first = placement_.previous(stage_) < 0;
    const double x =
        first ? std::cos(static_cast<double>(step_ * 31 + microbatch)) : TakeNumber(input);
    own = {true, x, weight_, 0};
    ++held_;
    if (placement_.next(stage_) >= 0) output.Send(MakeNumber(std::sin(weight_ * x)));
  }
  void Backward(int microbatch, Message gradient, Outlet& output) override {
    BackwardInput(microbatch, std::move(gradient), output);
    BackwardWeight(microbatch);
  }
  void BackwardInput(int microbatch, Message gradient, Outlet& output) override {
    Microbatch& own = microbatches_[microbatch];
    if (!own.held) throw std::runtime_error("backward before forward");
    const double from_next = placement_.next(stage_) < 0 ? 1 : TakeNumber(gradient);
    const double slope = std::cos(own.weight * own.x) * from_next;
    own.weight_gradient = slope * own.x;
    if (placement_.previous(stage_) >= 0) output.Send(MakeNumber(slope * own.weight));
  }
  void BackwardWeight(int microbatch) override {
    Microbatch& own = microbatches_[microbatch];
    gradient_ += own.weight_gradient;
    own.held = false;
    --held_;
    if (++ended_ == static_cast<int>(microbatches_.size()) && inject_)
      gradient_ *= inject_(stage_, step_);
  }
  void Step() override {
    if (!dropped_) Update();
    Clear();
  }
  std::int64_t ActivationBytes() const override { return held_ * 8; }

  StageUpdate& update() override { return *this; }
  Message ShareGradients(int) override { return MakeNumber(gradient_); }
  void TakeGradients(int chain, Message gradients) override {
    shared_[chain] = TakeNumber(gradients);
  }
  void AddGradients() override {
    shared_[stage_ / placement_.chain_length()] = gradient_;
    gradient_ = 0;
    for (const double gradient : shared_) gradient_ += gradient;
  }
  Message ShareParameter(int) override { return MakeNumber(gradient_); }
  void TakeParameter(int, int holder, Message gradient) override {
    of_holders_[holder] = TakeNumber(gradient);
  }
  void AddParameter(int) override {
    const auto own = std::find(holders_.begin(), holders_.end(), placement_.model_stage(stage_));
    of_holders_[own - holders_.begin()] = gradient_;
    gradient_ = 0;
    for (const double gradient : of_holders_) gradient_ += gradient;
  }
  std::span<const double> SquaredNorms() override {
    const bool counts = holders_.front() == placement_.model_stage(stage_);
    squared_norm_ = counts ? gradient_ * gradient_ : 0;
    return {&squared_norm_, 1};
  }
  std::string ParameterName(std::size_t) const override {
    return "weight " + std::to_string(stage_);
  }
  void ScaleGradients(double factor) override { gradient_ *= factor; }
  void DropGradients() override { dropped_ = true; }
  void TryStep() override {
    saved_ = {weight_, momentum_};
    Update();
  }
  void CommitStep() override { Clear(); }
  void RollBackStep() override {
    std::tie(weight_, momentum_) = saved_;
    ++undone_;
  }
  void DropForwards() override {
    for (Microbatch& microbatch : microbatches_) microbatch.held = false;
    held_ = 0;
  }

 private:
  // Returns the stages that hold the weight of `stage`, including itself.
  static std::vector<int> HoldersOf(const Schedule& schedule, int stage) {
    for (const std::vector<int>& holders : schedule.shared) {
      if (std::find(holders.begin(), holders.end(), stage) != holders.end()) return holders;
    }
    return {stage};
  }

  struct Microbatch {
    bool held = false;
    double x = 0;
    double weight = 0;
    double weight_gradient = 0;
  };

  void Update() {
    momentum_ = 0.9 * momentum_ + gradient_;
    weight_ -= 0.05 * momentum_;
  }
  void Clear() {
    gradient_ = 0;
    ended_ = 0;
    dropped_ = false;
  }

  const Placement& placement_;
  int stage_;
  std::vector<int> holders_;
  double weight_;
  Inject inject_;
  std::vector<Microbatch> microbatches_;
  std::vector<double> shared_;      // by chain
  std::vector<double> of_holders_;  // by holder
  double momentum_ = 0;
  double gradient_ = 0;
  double squared_norm_ = 0;
  bool dropped_ = false;
  std::pair<double, double> saved_;
  std::int64_t step_ = 0;
  std::int64_t held_ = 0;
  int ended_ = 0;
  int undone_ = 0;
};

}  // namespace penstock
