#include "model/decoder/decoder_block.h"

#include <ATen/ops/dropout.h>

#include "graph/ops/module_scope.h"

namespace penstock {

DecoderBlock::DecoderBlock(std::int64_t layer, std::int64_t dim, const DecoderOptions& options,
                           const LayerRange& range)
    : dropout_(options.dropout),
      attention_norm_(Norm("attention_norm", dim, options)),
      attention_(options.MakeAttention(*this, dim)),
      feed_forward_norm_(Norm("ffn_norm", dim, options)),
      feed_forward_(options.MakeFeedForward(*this, layer, dim, range)) {}

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
                                            const DecoderOptions& options) {
  return register_module(name, std::make_shared<RmsNorm>(dim, options.norm_epsilon));
}

torch::Tensor DecoderBlock::Dropped(const torch::Tensor& branch) {
  return at::dropout(branch, dropout_, is_training());
}

}  // namespace penstock
