// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): keys and values are projected up
// from a small latent vector, and a rotary part of the keys is shared by all heads.
#pragma once

#include <cstdint>
#include <memory>

#include "model/layers.h"
#include "model_spec/model_shape.h"

namespace penstock {

struct LatentSizes : LatentShape {
  std::int64_t dim, heads;
  double scale;  // of the scores
};

// Registers its parameters in the caller's block: wq_a, q_norm and wq_b (or wq), wkv_a, kv_norm,
// wkv_b and wo. The rotated pairs of the weights' rows are (2i, 2i + 1), as published.
class LatentAttention : public AttentionLayer {
 public:
  LatentAttention(torch::nn::Module& block, const LatentSizes& sizes, const LayerRange& range);
  torch::Tensor Attend(const torch::Tensor& input, const RotaryTable& rotary,
                       SequenceContext& context) override;

 private:
  torch::Tensor Queries(const torch::Tensor& input, const RotaryTable& rotary);
  KeysValues Own(const torch::Tensor& input, const RotaryTable& rotary);

  LatentSizes sizes_;  // of the rank
  TensorPlace place_;
  std::shared_ptr<Projection> wq_, wq_a_, wq_b_, wkv_a_, wkv_b_, wo_;
  std::shared_ptr<RmsNorm> q_norm_, kv_norm_;
};

}  // namespace penstock
