#include "model/decoder/latent_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include <array>

namespace penstock {
namespace {

constexpr double kLatentNormEpsilon = 1e-6;  // of the published models, whatever other norms have

// Reorders pairs (2i, 2i + 1) of the last dimension to (i, i + E/2), which RotaryTable rotates. The
// order of queries and keys does not change their products.
torch::Tensor Deinterleave(const torch::Tensor& input) {
  const std::int64_t half = input.size(-1) / 2;
  return input.unflatten(-1, {half, 2}).transpose(-1, -2).flatten(-2);
}

}  // namespace

LatentAttention::LatentAttention(torch::nn::Module& block, const LatentSizes& sizes,
                                 const LayerRange& range)
    : sizes_(sizes), place_(TensorPlace::Of(range)) {
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out,
                              const Cut& cut = {}) {
    return block.register_module(name, std::make_shared<Projection>(in, out, cut));
  };
  const Cut by_head = Cut::Outputs(range, sizes.heads);
  const auto norm = [&](const char* name, std::int64_t dim) {
    return block.register_module(name, std::make_shared<RmsNorm>(dim, kLatentNormEpsilon));
  };
  if (sizes.query_rank == 0) {
    wq_ = projection("wq", sizes.dim, sizes.heads * sizes.query_dim(), by_head);
  } else {
    wq_a_ = projection("wq_a", sizes.dim, sizes.query_rank);
    q_norm_ = norm("q_norm", sizes.query_rank);
    wq_b_ = projection("wq_b", sizes.query_rank, sizes.heads * sizes.query_dim(), by_head);
  }
  wkv_a_ = projection("wkv_a", sizes.dim, sizes.kv_rank + sizes.rotary_dim);
  kv_norm_ = norm("kv_norm", sizes.kv_rank);
  wkv_b_ = projection("wkv_b", sizes.kv_rank, sizes.heads * (sizes.plain_dim + sizes.value_dim),
                      by_head);
  wo_ = projection("wo", sizes.heads * sizes.value_dim, sizes.dim, Cut::Inputs(range));
  sizes_.heads /= place_.ranks;
}

torch::Tensor LatentAttention::Queries(const torch::Tensor& input, const RotaryTable& rotary) {
  const torch::Tensor latent = wq_ ? input : q_norm_->forward(wq_a_->forward(input));
  const torch::Tensor all =
      (wq_ ? wq_ : wq_b_)
          ->forward(ShareAmongRanks(latent, place_.WithAllTokens()))
          .view({input.size(0), input.size(1), sizes_.heads, sizes_.query_dim()})
          .transpose(1, 2);  // [B, H, S, E]
  const torch::Tensor rotated =
      rotary.Rotate(Deinterleave(all.narrow(-1, sizes_.plain_dim, sizes_.rotary_dim)));
  // Attention's output has the layout of its queries: with the heads inside, joining them is a
  // view.
  return at::cat({all.narrow(-1, 0, sizes_.plain_dim).transpose(1, 2), rotated.transpose(1, 2)}, -1)
      .transpose(1, 2);
}

KeysValues LatentAttention::Own(const torch::Tensor& input, const RotaryTable& rotary) {
  const std::int64_t batch = input.size(0), length = input.size(1), heads = sizes_.heads;
  const torch::Tensor latent = wkv_a_->forward(input);
  const torch::Tensor shared = Deinterleave(latent.narrow(-1, sizes_.kv_rank, sizes_.rotary_dim));
  const torch::Tensor rotated =  // [B, 1, S, rotary]
      ShareAmongRanks(rotary.Rotate(shared.unsqueeze(1)), place_.WithAllTokens());
  const torch::Tensor normal = kv_norm_->forward(latent.narrow(-1, 0, sizes_.kv_rank));
  const torch::Tensor up = wkv_b_->forward(ShareAmongRanks(normal, place_.WithAllTokens()))
                               .view({batch, length, heads, sizes_.plain_dim + sizes_.value_dim})
                               .transpose(1, 2);
  const torch::Tensor keys = at::cat({up.narrow(-1, 0, sizes_.plain_dim),
                                      rotated.expand({batch, heads, length, sizes_.rotary_dim})},
                                     -1);
  return {keys, up.narrow(-1, sizes_.plain_dim, sizes_.value_dim)};
}

// The small projections are computed by all ranks, for all tokens.
torch::Tensor LatentAttention::Attend(const torch::Tensor& own, const RotaryTable& rotary,
                                      SequenceContext& context) {
  const torch::Tensor input = AllTokens(own, place_);
  const torch::Tensor query = Queries(input, rotary);
  KeysValues known = context.Extend(Own(input, rotary));
  // Fused attention needs values of the size of the keys.
  const std::int64_t padding = sizes_.query_dim() - sizes_.value_dim;
  const std::array<std::int64_t, 2> sides = {0, padding};
  if (padding > 0) known.values = at::constant_pad_nd(known.values, sides);
  const torch::Tensor mixed =
      CausalAttention(query, known, context, sizes_.scale).narrow(-1, 0, sizes_.value_dim);
  return wo_->forward(mixed.transpose(1, 2).reshape(
      {input.size(0), input.size(1), sizes_.heads * sizes_.value_dim}));
}

}  // namespace penstock
