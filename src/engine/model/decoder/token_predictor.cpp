#include "model/decoder/token_predictor.h"

#include <ATen/ops/cat.h>

namespace penstock {

TokenPredictor::TokenPredictor(const ModelConfig& config, const DecoderOptions& options,
                               const LayerRange& range)
    : place_(ContextPlace::Of(range)) {
  const auto norm = [&](const char* name) {
    return register_module(name, std::make_shared<RmsNorm>(config.dim, options.norm_epsilon));
  };
  hidden_norm_ = norm("hidden_norm");
  next_norm_ = norm("next_norm");
  projection_ =
      register_module("projection", std::make_shared<Projection>(2 * config.dim, config.dim));
  block_ = register_module(
      "block", std::make_shared<DecoderBlock>(config.layers, config.dim, options, range));
  norm_ = norm("norm");
}

torch::Tensor TokenPredictor::forward(const torch::Tensor& hidden, const torch::Tensor& next,
                                      const RotaryTable& rotary, const torch::Tensor& starts) {
  const torch::Tensor both =
      at::cat({next_norm_->forward(next), hidden_norm_->forward(hidden)}, -1);
  SequenceContext context =
      starts.defined() ? SequenceContext::OfDocuments(starts) : SequenceContext();
  context.Divide(place_);
  const RotaryTable own = context.RotaryOf(rotary, hidden.size(1));
  return norm_->forward(block_->forward(projection_->forward(both), own, context));
}

}  // namespace penstock
