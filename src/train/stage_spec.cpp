// MakeStageSpec: a module, and a last stage's loss, as what capture takes.
#include "train/stage_spec.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>
#include <span>

#include "base/mix_bits.h"
#include "model/model.h"
#include "train/torch_stage.h"

namespace penstock {
namespace {

// Dropout and its like are on while this lives.
class TrainingMode {
 public:
  explicit TrainingMode(StageModule& module) : module_(module) { module_.train(); }
  ~TrainingMode() { module_.eval(); }
  TrainingMode(const TrainingMode&) = delete;
  TrainingMode& operator=(const TrainingMode&) = delete;

 private:
  StageModule& module_;
};

// A batch source fills its tensors again: what leaves a first stage has memory of its own.
std::vector<at::Tensor> WithOwnMemory(std::vector<at::Tensor> outputs,
                                      std::span<const at::Tensor> inputs) {
  for (at::Tensor& output : outputs) {
    for (const at::Tensor& input : inputs) {
      if (output.is_alias_of(input)) output = output.clone();
    }
  }
  return outputs;
}

}  // namespace

std::vector<NamedTensor> ParametersOf(const StageModule& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    const bool tied = std::any_of(
        parameters.begin(), parameters.end(),
        [&](const NamedTensor& before) { return before.tensor.is_same(parameter.value()); });
    if (!tied) parameters.push_back({parameter.key(), parameter.value()});
  }
  return parameters;
}

std::uint64_t SeedOfRun(std::uint64_t stage_seed, std::int64_t step, int row, Op op) {
  std::uint64_t seed = stage_seed;
  for (const auto part : {step, std::int64_t{row}, static_cast<std::int64_t>(op)}) {
    seed = SeedOf(seed, static_cast<std::uint64_t>(part));
  }
  return seed;
}

StageSpec MakeStageSpec(const std::shared_ptr<StageModule>& module, const StageExamples& examples,
                        const TorchStageOptions& options) {
  StageSpec spec;
  spec.parameters = ParametersOf(*module);
  spec.inputs = examples.inputs;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.inputs[i].requires_grad()) spec.input_gradients.push_back(static_cast<int>(i));
  }
  if (!options.last) {
    spec.forward = [module, first = options.first](std::span<const at::Tensor> inputs) {
      const TrainingMode training(*module);
      std::vector<at::Tensor> outputs = module->ForwardAll(inputs);
      return first ? WithOwnMemory(std::move(outputs), inputs) : outputs;
    };
    return spec;
  }
  spec.inputs.push_back(examples.targets);
  spec.output_gradient =
      1.0 / (options.mean_over > 0 ? options.mean_over : options.microbatches * options.replicas);
  spec.forward = [module](std::span<const at::Tensor> inputs) {
    const TrainingMode training(*module);
    const at::Tensor logits =
        module->ForwardAll(inputs.first(inputs.size() - 1)).front().to(at::kFloat);
    return std::vector{
        at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), inputs.back().reshape({-1}))};
  };
  return spec;
}

}  // namespace penstock
