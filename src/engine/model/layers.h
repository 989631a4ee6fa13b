// Layers that the models share, as plain modules of simple differentiable operators.
//
// Shapes: B samples, S tokens, D = dim, H heads of size E, G key and value heads.
// Layers have no in-place updates and no branches on data, so that a forward can be captured.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/rope.h"
#include "model/sequence_context.h"
#include "model/tensor_parallel.h"
#include "model_spec/attention_sizes.h"
#include "model_spec/layer_range.h"

namespace penstock {

// x W^T without a bias: maps [.., in] to [.., out].
class Projection : public DividedModule {
 public:
  Projection(std::int64_t in, std::int64_t out, const Cut& cut = {});
  torch::Tensor forward(const torch::Tensor& input);

 private:
  TensorPlace summed_;    // of the ranks that add their results
  torch::Tensor weight_;  // [out, in]
};

// x W^T + b: maps [.., in] to [.., out].
class Affine : public DividedModule {
 public:
  Affine(std::int64_t in, std::int64_t out, const Cut& cut = {});
  torch::Tensor forward(const torch::Tensor& input);

 private:
  TensorPlace summed_;    // as in Projection
  torch::Tensor weight_;  // [out, in]
  torch::Tensor bias_;    // [out]
};

// Maps token ids [B, S] to [B, S, D].
class Embedding : public DividedModule {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t dim, const Cut& cut = {});
  torch::Tensor forward(const torch::Tensor& tokens);
  const torch::Tensor& weight() const { return weight_; }

 private:
  Cut cut_;
  torch::Tensor weight_;  // [vocabulary, D], or the rank's rows
};

// x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension (Zhang and Sennrich 2019).
class RmsNorm : public DividedModule {
 public:
  RmsNorm(std::int64_t dim, double epsilon, const Cut& cut = {});
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::Tensor weight_;  // [D]
  double epsilon_;
};

// (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension (Ba et al. 2016).
class LayerNorm : public DividedModule {
 public:
  LayerNorm(std::int64_t dim, double epsilon, const Cut& cut = {});
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::Tensor weight_, bias_;  // [D]
  double epsilon_;
};

// Attention of each token of `query` [B, H, S, E] to itself and to the previous tokens that the
// context does not hide. `known` are the keys and values [B, G, P + S', E] that the context
// returned. Scores are multiplied by `scale`,
// which is 1 / sqrt(E) by default.
torch::Tensor CausalAttention(const torch::Tensor& query, const KeysValues& known,
                              SequenceContext& context, std::optional<double> scale = {});

// The attention of a block. Maps [B, S, D] to [B, S, D], and also attends to the context's earlier
// tokens.
class AttentionLayer {
 public:
  virtual ~AttentionLayer() = default;
  virtual torch::Tensor Attend(const torch::Tensor& input, const RotaryTable& rotary,
                               SequenceContext& context) = 0;
};

// The part of a block that treats each token on its own. Maps [.., D] to [.., D].
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  virtual torch::Tensor Run(const torch::Tensor& input) = 0;
  // See StageModule.
  virtual void SetLossGradient(double) {}
};

// Causal attention with rotary positions and grouped key and value heads. Registers its parameters
// (wq, wk, wv, wo, and q_norm and k_norm if there are any) in the caller's block.
class Attention : public AttentionLayer {
 public:
  Attention(torch::nn::Module& block, const AttentionSizes& sizes, const LayerRange& range = {});
  torch::Tensor Attend(const torch::Tensor& input, const RotaryTable& rotary,
                       SequenceContext& context) override;

 private:
  AttentionSizes sizes_;  // of the rank
  TensorPlace place_;
  std::shared_ptr<Projection> wq_, wk_, wv_, wo_;
  std::shared_ptr<RmsNorm> q_norm_, k_norm_;  // of each head; may be null
};

// w2(silu(w1 x) * w3 x) (Shazeer 2020). Registers its parameters in the caller's block.
class SwiGlu : public FeedForward {
 public:
  SwiGlu(torch::nn::Module& block, std::int64_t dim, std::int64_t hidden,
         const LayerRange& range = {});
  torch::Tensor Run(const torch::Tensor& input) override;

 private:
  TensorPlace place_;
  std::shared_ptr<Projection> w1_, w2_, w3_;
};

// Calls make(i) for each layer of the range, which returns a shared pointer to its block, and
// registers the block in the stage under its name in the whole model, such as layers.3. Returns the
// blocks in order.
template <class Make>
auto RegisterEachLayer(torch::nn::Module& stage, const LayerRange& range, const Make& make) {
  const auto layers = stage.register_module("layers", std::make_shared<torch::nn::Module>());
  std::vector<decltype(make(range.begin))> blocks;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    blocks.push_back(layers->register_module(std::to_string(i), make(i)));
  }
  return blocks;
}

// Registers layers that are all constructed from `arguments`.
template <class Block, class... Arguments>
std::vector<std::shared_ptr<Block>> RegisterLayers(torch::nn::Module& stage,
                                                   const LayerRange& range,
                                                   const Arguments&... arguments) {
  return RegisterEachLayer(stage, range,
                           [&](std::int64_t) { return std::make_shared<Block>(arguments...); });
}

}  // namespace penstock
