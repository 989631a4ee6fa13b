// Tensor parallelism: the ranks of a group divide the matrices of a stage (Shoeybi et al.,
// Megatron-LM, 2019). Each has some of the outputs of a layer's first matrices, and the inputs of
// the last one that follow from them; then the ranks add their results.
//
// What is between layers is the same on all ranks, bit for bit, and so is its gradient. Or each
// rank has an equal share of the tokens there, one after another (sequence parallelism, Korthikanti
// et al. 2022). Then layers gather the tokens, and scatter the sums of their results.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/layout.h"
#include "model/context_parallel.h"
#include "model_spec/layer_range.h"

namespace penstock {

// The part of a parameter that a rank has: one of `parts` equal parts of a dimension, or of each of
// its equal blocks.
struct ParameterPart {
  std::int64_t dimension = 0;
  std::int64_t whole = 0;  // indices of the dimension in the whole parameter
  std::int64_t blocks = 1;
  int parts = 1;
  int part = 0;
  // Consecutive ranks that have the same part. If there are several, each computes a gradient of
  // its own, and the gradient of the part is their sum.
  int copies = 1;

  Box box() const {
    const std::int64_t count = whole / blocks / parts;
    return {dimension, part * count, count, blocks};
  }
  // Returns the layout of a part of this shape.
  Layout LayoutOf(std::vector<std::int64_t> shape) const;
  // Returns the part of a whole parameter, which may be a view.
  at::Tensor Of(const at::Tensor& parameter) const;
  // Returns the whole parameter of these parts, in order.
  at::Tensor Join(std::span<const at::Tensor> all) const;
};

// A rank of those that divide a stage.
struct TensorPlace {
  int ranks = 1, rank = 0;
  bool divides_tokens = false;  // as in LayerRange

  static TensorPlace Of(const LayerRange& range) {
    return {range.tensor_ranks, range.tensor_rank, range.divides_tokens};
  }
  // Returns this place where every rank has all tokens.
  TensorPlace WithAllTokens() const { return {ranks, rank}; }
};

// How ranks divide a layer: its outputs, its inputs, or, if nothing, they use all of it for
// different heads or tokens.
struct Cut {
  enum class Of { kNothing, kOutputs, kInputs };

  Of of = Of::kNothing;
  TensorPlace place = {};
  // For outputs: the units that stay whole, such as heads; 0: any. Several ranks have the same unit
  // if there are fewer units than ranks.
  std::int64_t units = 0;
  std::int64_t blocks = 1;  // each is divided

  static Cut Outputs(const LayerRange& range, std::int64_t units = 0, std::int64_t blocks = 1) {
    return {Of::kOutputs, TensorPlace::Of(range), units, blocks};
  }
  static Cut Inputs(const LayerRange& range) { return {Of::kInputs, TensorPlace::Of(range)}; }
  static Cut ByHead(const LayerRange& range) { return {Of::kNothing, TensorPlace::Of(range)}; }
  // For what is used between layers.
  static Cut ByToken(const LayerRange& range) {
    return range.divides_tokens ? ByHead(range) : Cut();
  }

  // Ranks that divide a vocabulary of this size. All have the whole one unless they divide it
  // evenly.
  static Cut Vocabulary(const LayerRange& range, std::int64_t size) {
    return size % range.tensor_ranks == 0 ? Outputs(range) : Cut();
  }

  // Returns the part of a dimension of this size that the rank has.
  ParameterPart PartOf(std::int64_t dimension, std::int64_t size) const;
};

// A module with parameters that ranks divide.
class DividedModule : public torch::nn::Module {
 public:
  // By name. Other parameters, and their gradients, are the same on all ranks.
  const std::map<std::string, ParameterPart>& parts() const { return parts_; }

 protected:
  // Registers the rank's part of a parameter with these sizes, along a dimension.
  torch::Tensor RegisterPart(const char* name, std::vector<std::int64_t> sizes, const Cut& cut,
                             std::int64_t dimension);

 private:
  std::map<std::string, ParameterPart> parts_;
};

// Returns the parts that a stage has, by parameter.
std::map<std::string, ParameterPart> PartsOf(const torch::nn::Module& stage);

// Adds results [B, S, ..] over the ranks of kTensorGroup, for what is between layers.
torch::Tensor SumOverRanks(const torch::Tensor& x, const TensorPlace& place);
// Returns what is between layers, with all tokens [B, S, ..], for the ranks' parts of a layer. Its
// gradient is the sum of what they compute.
torch::Tensor ShareAmongRanks(const torch::Tensor& x, const TensorPlace& place);
// Returns all tokens, too, for what all ranks compute alike: their gradients are equal, and one of
// them is the result.
torch::Tensor AllTokens(const torch::Tensor& x, const TensorPlace& place);
// Returns the rank's tokens of what all ranks have, along a dimension.
torch::Tensor OwnTokens(const torch::Tensor& x, std::int64_t dimension, const TensorPlace& place);
// Returns the mean cross-entropy of logits, of which each rank of `cut` has an equal part of the
// vocabulary: [.., vocabulary / ranks], and each rank of `context` some tokens. Targets below 0 do
// not count. No rank of several has a whole row of logits.
torch::Tensor DividedCrossEntropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                  const Cut& cut, const ContextPlace& context);

}  // namespace penstock
