// Models as plain torch::nn code, built one pipeline stage at a time.
//
// A stage is a module over a range of layers, so model code is independent of pipelines. The
// initial value of a parameter depends only on the seed and its name in the whole model, so all
// partitions into stages are the same model.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model_spec/model_config.h"

namespace penstock {

class SequenceContext;

// A stage of a model. Its parameters have their names in the whole model ("layers.3.wq.weight").
class StageModule : public torch::nn::Module {
 public:
  // The input is token ids [batch, sequence] int64 if the stage has the embedding, else hidden
  // states [batch, sequence, dim]. Returns logits [batch, sequence, vocabulary] if the stage has
  // the head, else hidden states. Sequences may be shorter than ModelConfig::sequence.
  virtual torch::Tensor forward(torch::Tensor input) = 0;
  // Maps all tensors that the previous stage sends to the tensors that this stage sends, for models
  // whose stages send several (hidden states, position ids, a mask). The input of a first stage is
  // token ids alone, and the first output of a last stage is the logits. Tensors that require
  // gradients have gradients.
  virtual std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) {
    return {forward(inputs[0])};
  }
  // forward for one slice of the sequences. `input` follows the context's earlier slices. Only for
  // models whose tokens interact in causal attention alone; throws c10::Error unless overridden.
  virtual torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context);
  // Returns whether the stage overrides ForwardSlice. Then text is generated with a cache of keys
  // and values.
  virtual bool HasForwardSlice() const { return false; }
  // Returns the loss that training minimizes, an fp32 scalar: the mean per token of the
  // cross-entropy of the logits, unless overridden. `outputs` are a last stage's (ForwardAll), and
  // `targets` the next tokens [batch, sequence]. In evaluation mode, it is the reported loss, in
  // nats per token.
  virtual torch::Tensor Loss(std::span<const torch::Tensor> outputs, const torch::Tensor& targets);
  // Loss for a run whose loss reads several target tensors.
  virtual torch::Tensor LossOfAll(std::span<const torch::Tensor> outputs,
                                  std::span<const torch::Tensor> targets) {
    return Loss(outputs, targets[0]);
  }
  // Returns LossOfAll, followed by what the caller wants to see of each microbatch: tensors that
  // require no gradient (BatchSource::take_reports). Without slices.
  virtual std::vector<torch::Tensor> LossAndReports(std::span<const torch::Tensor> outputs,
                                                    std::span<const torch::Tensor> targets) {
    return {LossOfAll(outputs, targets)};
  }
  // Returns tensors, other than trained parameters, whose current values each forward reads, by
  // name: running statistics, which forward updates in place, and frozen weights. All other tensors
  // that forward reads are constants.
  virtual std::vector<std::pair<std::string, torch::Tensor>> StateTensors() const { return {}; }
  // Sets the gradient of the loss, such as 1/microbatches. Only for models whose layers add terms
  // to the loss, because they are also in stages that do not compute the loss.
  virtual void SetLossGradient(double) {}
};

// Returns an initialized stage in evaluation mode. Training code switches the mode.
// Errors: as CheckModel; kInvalidArgument for a range that the model does not have.
Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config, const LayerRange& range);

// Builds the stage with unspecified values, for a caller that sets all of them.
Result<std::shared_ptr<StageModule>> BuildUninitializedStage(const ModelConfig& config,
                                                             const LayerRange& range);

// Moves the stage's parameters and buffers to the device, in place: all that refers to them
// follows.
void MoveStage(StageModule& stage, c10::Device device);
// Returns where the stage's parameters are.
c10::Device DeviceOf(const StageModule& stage);

// Returns the initial values of rows `begin` to `end` - 1 of a parameter of this shape, as
// BuildStage sets them. Requires: CheckModel succeeds.
torch::Tensor InitialRows(const ModelConfig& config, std::string_view parameter,
                          std::span<const std::int64_t> shape, std::int64_t begin,
                          std::int64_t end);

// Returns whether two stages of the model differ only in their weights, so that they can share
// graphs.
bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other);

// Returns a copy of the stage with its weights converted to `dtype`. Buffers keep their dtypes.
Result<std::shared_ptr<StageModule>> CastStage(StageModule& stage, const ModelConfig& config,
                                               const LayerRange& range, at::ScalarType dtype);

}  // namespace penstock
