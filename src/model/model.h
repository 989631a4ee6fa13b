// Models as plain torch::nn code, built one pipeline stage at a time.
//
// Model code is independent of pipelines: a stage is a module over a range of layers. The initial
// value of a parameter depends only on the seed and on its name in the whole model, so every
// partition into stages is the same model.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"

namespace penstock {

class SequenceContext;

// A stage of a model. forward: takes token ids [batch, sequence] int64 if the stage has the
// embedding, else hidden states [batch, sequence, dim]; returns logits [batch, sequence,
// vocabulary] if it has the head, else hidden states. Sequences may be shorter than the model's.
// Parameters have their names in the whole model ("layers.3.wq.weight").
class StageModule : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor input) = 0;
  // All tensors that are sent from stage to stage, for models whose stages send more than one
  // (position ids, a mask). A first stage gets only token ids, and the first output of a last stage
  // is the logits. Gradients flow back for tensors that require them.
  virtual std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) {
    return {forward(inputs[0])};
  }
  // forward for one slice of the sequences: `input` is what follows the context's earlier slices.
  // For models in which tokens interact only in causal attention; throws for others.
  virtual torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context);
  // Returns what training minimizes: the mean loss per token, an fp32 scalar, of a last stage's
  // outputs (ForwardAll) against the next tokens [batch, sequence]. The cross entropy of the logits
  // unless a model overrides it. In evaluation mode, it is the reported loss, in nats per token.
  virtual torch::Tensor Loss(std::span<const torch::Tensor> outputs, const torch::Tensor& targets);
};

// Builds a stage in evaluation mode; training code switches the mode. Rejects what CheckModel
// rejects, and a range that the model does not have.
Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config, const LayerRange& range);

// Returns whether two stages of the model differ only in their weights, so that they can use the
// same graphs.
bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other);

// Returns another stage with the same weights in `dtype`; buffers do not change.
Result<std::shared_ptr<StageModule>> CastStage(StageModule& stage, const ModelConfig& config,
                                               const LayerRange& range, at::ScalarType dtype);

}  // namespace penstock
