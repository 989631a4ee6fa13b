// Multi-head latent attention (DeepSeek-V2, 2024, section 2.1): keys and values are projected up
// from a small latent vector, and a rotary part of the keys is shared by all heads.
#pragma once

#include <cstdint>
#include <memory>

#include "model/layers.h"

namespace penstock {

struct LatentSizes {
  std::int64_t dim, heads;
  std::int64_t query_rank;  // of the queries' latent vector; 0: queries are projected directly
  std::int64_t kv_rank;     // of the latent vector of keys and values
  std::int64_t plain_dim;   // of a head's queries and keys without rotary positions
  std::int64_t rotary_dim;  // of a head's queries and keys with rotary positions
  std::int64_t value_dim;   // of a head's values
  double scale;             // of the scores

  std::int64_t query_dim() const { return plain_dim + rotary_dim; }
};

// Registers its parameters in the caller's block: wq_a, q_norm and wq_b (or wq), wkv_a, kv_norm,
// wkv_b and wo. The rotated pairs of the weights' rows are (2i, 2i + 1), as published.
class LatentAttention : public AttentionLayer {
 public:
  LatentAttention(torch::nn::Module& block, const LatentSizes& sizes);
  torch::Tensor Attend(const torch::Tensor& input, const RotaryTable& rotary,
                       SequenceContext& context) override;

 private:
  torch::Tensor Queries(const torch::Tensor& input, const RotaryTable& rotary, std::int64_t start);
  KeysValues Own(const torch::Tensor& input, const RotaryTable& rotary, std::int64_t start);

  LatentSizes sizes_;
  std::shared_ptr<Projection> wq_, wq_a_, wq_b_, wkv_a_, wkv_b_, wo_;
  std::shared_ptr<RmsNorm> q_norm_, kv_norm_;
};

}  // namespace penstock
