// Multi-token prediction (DeepSeek-V3, 2024, section 2.2): one more block that predicts the token
// after the next one, from the hidden state of a token and the embedding of the next token.
#pragma once

#include <memory>

#include "model/decoder/decoder_block.h"

namespace penstock {

// Shares the model's embedding and head.
class TokenPredictor : public torch::nn::Module {
 public:
  TokenPredictor(const ModelConfig& config, const DecoderOptions& options, const LayerRange& range);

  // `hidden` are the normalized states [B, S, D] of tokens, `next` the embeddings [B, S, D] of the
  // tokens that follow them. `starts` [B, S] are the starts of the tokens' documents
  // (SequenceContext); undefined without documents. Returns the states [B, S, D] for the head. Of
  // several context ranks, each has all of its tokens.
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& next,
                        const RotaryTable& rotary, const torch::Tensor& starts);
  void SetLossGradient(double gradient) { block_->SetLossGradient(gradient); }

 private:
  ContextPlace place_;
  std::shared_ptr<RmsNorm> hidden_norm_, next_norm_, norm_;
  std::shared_ptr<Projection> projection_;
  std::shared_ptr<DecoderBlock> block_;
};

}  // namespace penstock
