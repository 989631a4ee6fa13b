#include "train/weights/gradient_memory.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

namespace penstock {

GradientMemory::GradientMemory(std::span<const NamedTensor> parameters, const Shards& shards,
                               bool sharded, const at::TensorOptions& options)
    : shards_(shards), sharded_(sharded), flat_(at::zeros({InFlat(shards.end())}, options)) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& like = parameters[i].tensor;
    tensors_.push_back(
        sharded && shards.sharded(i)
            ? at::empty_like(like, like.options().dtype(options.dtype()))
            : flat_.as_strided(like.sizes(), like.strides(), InFlat(shards.start(i))));
  }
}

std::int64_t GradientMemory::InFlat(std::int64_t element) const {
  if (!sharded_) return element;
  const std::int64_t shard = shards_.shard_elements();
  return element < shards_.rest() ? element % shard : element - shards_.rest() + shard;
}

at::Tensor GradientMemory::Of(const Shards::ParameterPiece& piece) const {
  return flat_.narrow(0, InFlat(shards_.start(piece.parameter) + piece.begin), piece.size());
}

}  // namespace penstock
