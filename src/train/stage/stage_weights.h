// A stage's weights: its parameters, their gradients, and the versions of the weights that rows in
// flight still read. Private to train/. Threads: its stage's one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "runtime/message.h"
#include "train/stage/torch_stage.h"

namespace penstock {

class StageWeights {
 public:
  // `working` are what is computed with, `masters` what is trained: the same, or casts of them.
  // `tail` floats go with gradients that are shared.
  StageWeights(std::span<const NamedTensor> working, std::span<const NamedTensor> masters,
               const TorchStageOptions& options, std::size_t tail);

  // What graphs are bound to: the weights of the version in use, and their gradients.
  const std::vector<at::Tensor>& values() const { return values_; }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  std::vector<NamedParameter>& parameters() { return parameters_; }
  const std::string& name(std::size_t parameter) const { return parameters_[parameter].name; }

  // Updates of the run so far: the newest version.
  std::int64_t updates() const { return updates_; }
  void StartAt(std::int64_t updates) { updates_ = updates; }
  // Requires that the version is kept.
  void Use(std::int64_t version);
  // Memory of all versions that are kept, in bytes.
  std::int64_t VersionBytes() const;
  int versions() const { return 1 + static_cast<int>(older_.size()); }

  // As in Stage.
  void Step(const TorchStage::Update& update);
  void TryStep(const TorchStage::Update& update);
  void KeepStep();
  void UndoStep();
  void ScaleGradients(double factor);
  void DropGradients() { dropped_ = true; }
  std::span<const double> SquaredNorms();  // by parameter, as parameters()

  // The same for parameters that other stages hold, by number in TorchStageOptions::shared.
  Message ShareParameter(int parameter);
  void TakeParameter(int parameter, int holder, Message gradient);
  void AddParameter(int parameter);

  Message Share(std::span<const float> tail);
  void Take(int chain, Message gradients);
  void Add();
  // What came with the gradients of another chain; valid behind Add().
  std::span<const float> Tail(int chain) const { return tails_[chain]; }

 private:
  // A parameter that other stages hold.
  struct Shared {
    std::size_t index = 0;  // of parameters_
    int holder = 0;
    at::Tensor outgoing;            // what other holders read
    std::vector<Message> incoming;  // by holder
  };

  void Update(const TorchStage::Update& update);
  void SetWorking();
  void Clear();

  bool cast_;
  OptimizerHooks optimizer_;
  int chain_;
  std::vector<at::Tensor> values_;              // bound: memory of a version
  std::vector<at::Tensor> newest_;              // what the working tensors are
  std::vector<std::vector<at::Tensor>> older_;  // version v is at v % size
  int in_use_ = -1;                             // of older_; -1: the newest
  std::int64_t updates_ = 0;
  at::Tensor flat_;             // all gradients, then the tail: one call clears or adds them
  std::int64_t flat_size_ = 0;  // without the tail
  std::vector<at::Tensor> gradients_;
  std::vector<NamedParameter> parameters_;
  std::vector<std::optional<Shared>> shared_;  // as in TorchStageOptions
  bool dropped_ = false;
  std::vector<double> norms_;
  at::Tensor outgoing_;            // what replicas read; written again when all have read it
  std::vector<Message> incoming_;  // by chain
  std::vector<std::vector<float>> tails_;  // by chain
};

}  // namespace penstock
