// A block of a decoder: attention, then a feed-forward layer, each after RMSNorm and with a
// residual.
#pragma once

#include <memory>

#include "model/layers.h"
#include "model_spec/models/decoder_options.h"

namespace penstock {

class DecoderBlock : public torch::nn::Module {
 public:
  DecoderBlock(std::int64_t layer, std::int64_t dim, const DecoderOptions& options,
               const LayerRange& range);

  // Maps [B, S, D] to [B, S, D].
  torch::Tensor forward(const torch::Tensor& input, const RotaryTable& rotary,
                        SequenceContext& context);
  void SetLossGradient(double gradient) { feed_forward_->SetLossGradient(gradient); }

 private:
  std::shared_ptr<RmsNorm> Norm(const char* name, std::int64_t dim, const DecoderOptions& options,
                                const LayerRange& range);
  // The branches, each with its norm.
  torch::Tensor Attention(const torch::Tensor& input, const RotaryTable& rotary,
                          SequenceContext& context);
  torch::Tensor Mlp(const torch::Tensor& input);
  torch::Tensor Dropped(const torch::Tensor& branch);

  double dropout_;
  std::shared_ptr<RmsNorm> attention_norm_;
  std::unique_ptr<AttentionLayer> attention_;
  std::shared_ptr<RmsNorm> feed_forward_norm_;
  std::unique_ptr<FeedForward> feed_forward_;
};

}  // namespace penstock
