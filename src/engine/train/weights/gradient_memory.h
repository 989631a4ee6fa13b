// GradientMemory: the sums of a stage's gradients. Private to train/. Threads: as StageWeights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/capture/capture.h"
#include "train/shards/shards.h"

namespace penstock {

class GradientMemory {
 public:
  // Zeros, of the dtype, on the device, for parameters like these. With `sharded` (ZeRO-2 and 3),
  // gradients of parameters in shards get their memory when they exist, and their sums are only of
  // the own shard. `shards` must outlive the object.
  GradientMemory(std::span<const NamedTensor> parameters, const Shards& shards, bool sharded,
                 const at::TensorOptions& options);

  // By parameter. Graphs are bound to them.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // All sums in the order of the sequence (see Shards), so that one call clears or adds them.
  const at::Tensor& flat() const { return flat_; }
  // The place in `flat` of an element of the sequence.
  std::int64_t InFlat(std::int64_t element) const;
  // A part of `flat`.
  at::Tensor Of(const Shards::ParameterPiece& piece) const;

 private:
  const Shards& shards_;
  bool sharded_;
  at::Tensor flat_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace penstock
