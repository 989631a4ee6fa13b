#include "model/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

namespace penstock {

Projection::Projection(std::int64_t in, std::int64_t out)
    : weight_(register_parameter("weight", at::empty({out, in}))) {}

torch::Tensor Projection::forward(const torch::Tensor& input) { return at::linear(input, weight_); }

Affine::Affine(std::int64_t in, std::int64_t out)
    : weight_(register_parameter("weight", at::empty({out, in}))),
      bias_(register_parameter("bias", at::empty({out}))) {}

torch::Tensor Affine::forward(const torch::Tensor& input) {
  return at::linear(input, weight_, bias_);
}

Embedding::Embedding(std::int64_t vocabulary, std::int64_t dim)
    : weight_(register_parameter("weight", at::empty({vocabulary, dim}))) {}

torch::Tensor Embedding::forward(const torch::Tensor& tokens) {
  return at::embedding(weight_, tokens);
}

RmsNorm::RmsNorm(std::int64_t dim, double epsilon)
    : weight_(register_parameter("weight", at::empty({dim}))), epsilon_(epsilon) {}

torch::Tensor RmsNorm::forward(const torch::Tensor& input) {
  const torch::Tensor wide = input.to(at::kFloat);  // for the range of squares
  const torch::Tensor mean_square = wide.pow(2).mean(-1, /*keepdim=*/true);
  return (wide * at::rsqrt(mean_square + epsilon_)).to(input.scalar_type()) * weight_;
}

LayerNorm::LayerNorm(std::int64_t dim, double epsilon)
    : weight_(register_parameter("weight", at::empty({dim}))),
      bias_(register_parameter("bias", at::empty({dim}))),
      epsilon_(epsilon) {}

torch::Tensor LayerNorm::forward(const torch::Tensor& input) {
  const torch::Tensor wide = input.to(at::kFloat);  // for the range of squares
  const torch::Tensor centered = wide - wide.mean(-1, /*keepdim=*/true);
  const torch::Tensor variance = centered.pow(2).mean(-1, /*keepdim=*/true);
  const torch::Tensor normal = (centered * at::rsqrt(variance + epsilon_)).to(input.scalar_type());
  return normal * weight_ + bias_;
}

torch::Tensor CausalAttention(const torch::Tensor& query, const KeysValues& known,
                              SequenceContext& context, std::optional<double> scale) {
  const std::optional<torch::Tensor> mask = context.Mask(query);
  return at::scaled_dot_product_attention(query, known.keys, known.values, mask,
                                          /*dropout_p=*/0.0, /*is_causal=*/!mask, scale);
}

Attention::Attention(torch::nn::Module& block, const AttentionSizes& sizes) : sizes_(sizes) {
  const std::int64_t kv_dim = sizes.head_dim * sizes.kv_heads;
  const std::int64_t all_dim = sizes.head_dim * sizes.heads;
  wq_ = block.register_module("wq", std::make_shared<Projection>(sizes.dim, all_dim));
  wk_ = block.register_module("wk", std::make_shared<Projection>(sizes.dim, kv_dim));
  wv_ = block.register_module("wv", std::make_shared<Projection>(sizes.dim, kv_dim));
  wo_ = block.register_module("wo", std::make_shared<Projection>(all_dim, sizes.dim));
  if (sizes.qk_norm_epsilon == 0) return;
  const auto norm = [&](const char* name) {
    return block.register_module(name,
                                 std::make_shared<RmsNorm>(sizes.head_dim, sizes.qk_norm_epsilon));
  };
  q_norm_ = norm("q_norm");
  k_norm_ = norm("k_norm");
}

torch::Tensor Attention::Attend(const torch::Tensor& input, const RotaryTable& rotary,
                                SequenceContext& context) {
  const std::int64_t batch = input.size(0), length = input.size(1);
  const std::int64_t head_dim = sizes_.head_dim;
  const auto heads_of = [&](const torch::Tensor& value, std::int64_t heads) {
    return value.view({batch, length, heads, head_dim}).transpose(1, 2);  // [B, heads, S, E]
  };
  const auto share = [&](const torch::Tensor& value) {  // [B, G, S', E] to [B, H, S', E]
    if (sizes_.kv_heads == sizes_.heads) return value;
    const std::int64_t all = value.size(2);
    return value.unsqueeze(2)
        .expand({batch, sizes_.kv_heads, sizes_.heads / sizes_.kv_heads, all, head_dim})
        .reshape({batch, sizes_.heads, all, head_dim});
  };
  const std::int64_t start = context.start();
  torch::Tensor query = heads_of(wq_->forward(input), sizes_.heads);
  torch::Tensor keys = heads_of(wk_->forward(input), sizes_.kv_heads);
  if (q_norm_) {
    query = q_norm_->forward(query);
    keys = k_norm_->forward(keys);
  }
  query = rotary.Rotate(query, start);
  const KeysValues all =
      context.Extend({rotary.Rotate(keys, start), heads_of(wv_->forward(input), sizes_.kv_heads)});
  const torch::Tensor mixed = CausalAttention(query, {share(all.keys), share(all.values)}, context);
  return wo_->forward(mixed.transpose(1, 2).reshape({batch, length, sizes_.heads * head_dim}));
}

SwiGlu::SwiGlu(torch::nn::Module& block, std::int64_t dim, std::int64_t hidden) {
  w1_ = block.register_module("w1", std::make_shared<Projection>(dim, hidden));
  w2_ = block.register_module("w2", std::make_shared<Projection>(hidden, dim));
  w3_ = block.register_module("w3", std::make_shared<Projection>(dim, hidden));
}

torch::Tensor SwiGlu::Run(const torch::Tensor& input) {
  return w2_->forward(at::silu(w1_->forward(input)) * w3_->forward(input));
}

}  // namespace penstock
