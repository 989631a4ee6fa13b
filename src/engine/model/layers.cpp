#include "model/layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <cmath>

#include "model/ring_attention.h"

namespace penstock {

namespace {

TensorPlace SummedPlace(const Cut& cut) {
  return cut.of == Cut::Of::kInputs ? cut.place : TensorPlace();
}

std::int64_t DividedDimension(const Cut& cut) { return cut.of == Cut::Of::kInputs ? 1 : 0; }

// Ranks that divide the inputs all have the bias, and add it to the sum of their results.
Cut BiasCut(const Cut& cut) {
  if (cut.of != Cut::Of::kInputs) return cut;
  return cut.place.divides_tokens ? Cut{Cut::Of::kNothing, cut.place} : Cut();
}

}  // namespace

Projection::Projection(std::int64_t in, std::int64_t out, const Cut& cut)
    : summed_(SummedPlace(cut)),
      weight_(RegisterPart("weight", {out, in}, cut, DividedDimension(cut))) {}

torch::Tensor Projection::forward(const torch::Tensor& input) {
  return SumOverRanks(at::linear(input, weight_), summed_);
}

Affine::Affine(std::int64_t in, std::int64_t out, const Cut& cut)
    : summed_(SummedPlace(cut)),
      weight_(RegisterPart("weight", {out, in}, cut, DividedDimension(cut))),
      bias_(RegisterPart("bias", {out}, BiasCut(cut), 0)) {}

torch::Tensor Affine::forward(const torch::Tensor& input) {
  if (summed_.ranks == 1) return at::linear(input, weight_, bias_);
  return SumOverRanks(at::linear(input, weight_), summed_) + bias_;
}

Embedding::Embedding(std::int64_t vocabulary, std::int64_t dim, const Cut& cut)
    : cut_(cut), weight_(RegisterPart("weight", {vocabulary, dim}, cut, 0)) {}

// Tokens of other ranks are zeros in the sum.
torch::Tensor Embedding::forward(const torch::Tensor& tokens) {
  const bool has_all = cut_.of == Cut::Of::kNothing || cut_.place.ranks == 1;
  if (has_all) return at::embedding(weight_, tokens);
  const torch::Tensor rows = tokens - cut_.place.rank * weight_.size(0);
  const torch::Tensor inside = rows.clamp(0, weight_.size(0) - 1);
  const torch::Tensor other = rows.ne(inside).unsqueeze(-1);
  return SumOverRanks(at::embedding(weight_, inside).masked_fill(other, 0), cut_.place);
}

RmsNorm::RmsNorm(std::int64_t dim, double epsilon, const Cut& cut)
    : weight_(RegisterPart("weight", {dim}, cut, 0)), epsilon_(epsilon) {}

torch::Tensor RmsNorm::forward(const torch::Tensor& input) {
  const torch::Tensor wide = input.to(at::kFloat);  // for the range of squares
  const torch::Tensor mean_square = wide.pow(2).mean(-1, /*keepdim=*/true);
  return (wide * at::rsqrt(mean_square + epsilon_)).to(input.scalar_type()) * weight_;
}

LayerNorm::LayerNorm(std::int64_t dim, double epsilon, const Cut& cut)
    : weight_(RegisterPart("weight", {dim}, cut, 0)),
      bias_(RegisterPart("bias", {dim}, cut, 0)),
      epsilon_(epsilon) {}

torch::Tensor LayerNorm::forward(const torch::Tensor& input) {
  const torch::Tensor wide = input.to(at::kFloat);  // for the range of squares
  const torch::Tensor centered = wide - wide.mean(-1, /*keepdim=*/true);
  const torch::Tensor variance = centered.pow(2).mean(-1, /*keepdim=*/true);
  const torch::Tensor normal = (centered * at::rsqrt(variance + epsilon_)).to(input.scalar_type());
  return normal * weight_ + bias_;
}

torch::Tensor CausalAttention(const torch::Tensor& own, const KeysValues& of_groups,
                              SequenceContext& context, std::optional<double> scale) {
  if (context.place().is_ring()) {
    const double root = std::sqrt(static_cast<double>(own.size(-1)));
    return RingAttention(own, of_groups.keys, of_groups.values, context.MasksOfDocuments(own),
                         context.place(), scale.value_or(1 / root));
  }
  const torch::Tensor query = context.ToAttention(own);
  const KeysValues known = {RepeatHeads(of_groups.keys, query.size(1)),
                            RepeatHeads(of_groups.values, query.size(1))};
  const auto attend = [&](const torch::Tensor& queries, const KeysValues& seen,
                          const TokenRun& run) {
    const std::optional<torch::Tensor> mask = context.Mask(query, run);
    return at::scaled_dot_product_attention(queries, seen.keys, seen.values, mask,
                                            /*dropout_p=*/0.0, /*is_causal=*/!mask, scale);
  };
  const std::vector<TokenRun> runs = context.Runs(query.size(-2));
  if (runs.size() == 1) return context.FromAttention(attend(query, known, runs.front()));
  std::vector<torch::Tensor> mixed;
  for (const TokenRun& run : runs) {
    const std::int64_t keys = context.start() + run.position + run.length;
    const KeysValues seen = {known.keys.narrow(-2, 0, keys), known.values.narrow(-2, 0, keys)};
    mixed.push_back(attend(query.narrow(-2, run.first, run.length), seen, run).transpose(1, 2));
  }
  return at::cat(mixed, 1).transpose(1, 2);  // with the heads inside, as the queries have them
}

Attention::Attention(torch::nn::Module& block, const AttentionSizes& sizes, const LayerRange& range)
    : sizes_(sizes), place_(TensorPlace::Of(range)) {
  const std::int64_t kv_dim = sizes.head_dim * sizes.kv_heads;
  const std::int64_t all_dim = sizes.head_dim * sizes.heads;
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out, const Cut& cut) {
    return block.register_module(name, std::make_shared<Projection>(in, out, cut));
  };
  wq_ = projection("wq", sizes.dim, all_dim, Cut::Outputs(range, sizes.heads));
  wk_ = projection("wk", sizes.dim, kv_dim, Cut::Outputs(range, sizes.kv_heads));
  wv_ = projection("wv", sizes.dim, kv_dim, Cut::Outputs(range, sizes.kv_heads));
  wo_ = projection("wo", all_dim, sizes.dim, Cut::Inputs(range));
  sizes_.heads /= place_.ranks;
  sizes_.kv_heads = std::max<std::int64_t>(sizes_.kv_heads / place_.ranks, 1);
  if (sizes.qk_norm_epsilon == 0) return;
  const auto norm = [&](const char* name) {
    return block.register_module(
        name, std::make_shared<RmsNorm>(sizes.head_dim, sizes.qk_norm_epsilon, Cut::ByHead(range)));
  };
  q_norm_ = norm("q_norm");
  k_norm_ = norm("k_norm");
}

torch::Tensor Attention::Attend(const torch::Tensor& own, const RotaryTable& rotary,
                                SequenceContext& context) {
  const torch::Tensor input = ShareAmongRanks(own, place_);
  const std::int64_t batch = input.size(0), length = input.size(1);
  const std::int64_t head_dim = sizes_.head_dim;
  const auto heads_of = [&](const torch::Tensor& value, std::int64_t heads) {
    return value.view({batch, length, heads, head_dim}).transpose(1, 2);  // [B, heads, S, E]
  };
  torch::Tensor query = heads_of(wq_->forward(input), sizes_.heads);
  torch::Tensor keys = heads_of(wk_->forward(input), sizes_.kv_heads);
  if (q_norm_) {
    query = q_norm_->forward(query);
    keys = k_norm_->forward(keys);
  }
  query = rotary.Rotate(query);
  const KeysValues all =
      context.Extend({rotary.Rotate(keys), heads_of(wv_->forward(input), sizes_.kv_heads)});
  const torch::Tensor mixed = CausalAttention(query, all, context);
  return wo_->forward(mixed.transpose(1, 2).reshape({batch, length, sizes_.heads * head_dim}));
}

SwiGlu::SwiGlu(torch::nn::Module& block, std::int64_t dim, std::int64_t hidden,
               const LayerRange& range)
    : place_(TensorPlace::Of(range)) {
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out, const Cut& cut) {
    return block.register_module(name, std::make_shared<Projection>(in, out, cut));
  };
  w1_ = projection("w1", dim, hidden, Cut::Outputs(range));
  w2_ = projection("w2", hidden, dim, Cut::Inputs(range));
  w3_ = projection("w3", dim, hidden, Cut::Outputs(range));
}

torch::Tensor SwiGlu::Run(const torch::Tensor& own) {
  const torch::Tensor input = ShareAmongRanks(own, place_);
  return w2_->forward(at::silu(w1_->forward(input)) * w3_->forward(input));
}

}  // namespace penstock
