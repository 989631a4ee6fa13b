#include "model/decoder/decoder_block.h"

#include <ATen/ops/dropout.h>

#include <cmath>

#include "graph/ops/module_scope.h"
#include "model/decoder/experts.h"
#include "model/decoder/latent_attention.h"

namespace penstock {
namespace {

// Returns the block's attention, whose parameters it registers in the block.
std::unique_ptr<AttentionLayer> AddAttention(torch::nn::Module& block, std::int64_t dim,
                                             const DecoderOptions& options,
                                             const LayerRange& range) {
  const auto latent = options.Latent(dim);
  if (!latent) return std::make_unique<Attention>(block, options.AttentionOf(dim), range);
  const double root = std::sqrt(static_cast<double>(latent->query_dim()));
  return std::make_unique<LatentAttention>(
      block, LatentSizes{*latent, dim, options.heads, options.rope.ScoreScale() / root}, range);
}

// Likewise for the feed-forward part.
std::unique_ptr<FeedForward> AddFeedForward(torch::nn::Module& block, std::int64_t layer,
                                            std::int64_t dim, const DecoderOptions& options,
                                            const LayerRange& range) {
  const ExpertOptions* const experts = options.Experts();
  if (experts == nullptr || layer < experts->dense_layers) {
    return std::make_unique<SwiGlu>(block, dim, options.HiddenOf(dim), range);
  }
  return std::make_unique<ExpertLayer>(block, dim, options.ExpertHiddenOf(dim), *experts, range);
}

}  // namespace

DecoderBlock::DecoderBlock(std::int64_t layer, std::int64_t dim, const DecoderOptions& options,
                           const LayerRange& range)
    : dropout_(options.dropout),
      attention_norm_(Norm("attention_norm", dim, options, range)),
      attention_(AddAttention(*this, dim, options, range)),
      feed_forward_norm_(Norm("ffn_norm", dim, options, range)),
      feed_forward_(AddFeedForward(*this, layer, dim, options, range)) {}

torch::Tensor DecoderBlock::forward(const torch::Tensor& input, const RotaryTable& rotary,
                                    SequenceContext& context) {
  const torch::Tensor middle = input + Dropped(Attention(input, rotary, context));
  return middle + Dropped(Mlp(middle));
}

torch::Tensor DecoderBlock::Attention(const torch::Tensor& input, const RotaryTable& rotary,
                                      SequenceContext& context) {
  const ModuleScope scope(ModuleKind::kAttention);
  return attention_->Attend(attention_norm_->forward(input), rotary, context);
}

torch::Tensor DecoderBlock::Mlp(const torch::Tensor& input) {
  const ModuleScope scope(ModuleKind::kMlp);
  return feed_forward_->Run(feed_forward_norm_->forward(input));
}

std::shared_ptr<RmsNorm> DecoderBlock::Norm(const char* name, std::int64_t dim,
                                            const DecoderOptions& options,
                                            const LayerRange& range) {
  return register_module(name,
                         std::make_shared<RmsNorm>(dim, options.norm_epsilon, Cut::ByToken(range)));
}

torch::Tensor DecoderBlock::Dropped(const torch::Tensor& branch) {
  return at::dropout(branch, dropout_, is_training());
}

}  // namespace penstock
