// Models as plain torch::nn code, built one pipeline stage at a time.
//
// Model code knows nothing of pipelines: a stage is a module over a range of layers. A parameter's
// initial value depends on the seed and on its name in the whole model alone, so however a model is
// cut, it is the same model.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace penstock {

class SequenceContext;

// A stage of a model. forward: token ids [batch, sequence] int64 where the stage has the embedding,
// else hidden states [batch, sequence, dim]; returns hidden states, or logits [batch, sequence,
// vocabulary] where it has the head. A shorter sequence than the model's is taken too. Parameters
// are named as in the whole model ("layers.3.wq.weight").
class StageModule : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor input) = 0;
  // All that goes from stage to stage: for a model whose stages hand over more than one tensor
  // (position ids, a mask). A first stage gets token ids alone, a last stage's first output are the
  // logits. Gradients flow back for what requires them.
  virtual std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) {
    return {forward(inputs[0])};
  }
  // forward of a later part of the sequences: `input` holds what follows the context's earlier
  // slices. For models whose tokens meet in causal attention alone; throws for others.
  virtual torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context);
  // What training minimizes: the mean loss per token, a number in fp32, of a last stage's outputs
  // (ForwardAll) against the next tokens [batch, sequence]. The cross entropy of the logits unless
  // a model overrides it. In evaluation mode it is the loss that is reported, in nats per token.
  virtual torch::Tensor Loss(std::span<const torch::Tensor> outputs, const torch::Tensor& targets);
};

// In evaluation mode: who trains it says so. Refuses what CheckModel refuses, and a range that the
// model does not have.
Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config, const LayerRange& range);

// Whether two stages of the model compute the same but for their weights: one's graphs are then the
// other's.
bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other);

// Another stage with the same weights in `dtype`; tables stay as they are.
Result<std::shared_ptr<StageModule>> CastStage(StageModule& stage, const ModelConfig& config,
                                               const LayerRange& range, at::ScalarType dtype);

}  // namespace penstock
