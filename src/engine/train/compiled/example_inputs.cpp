#include "train/compiled/example_inputs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "config/replicas.h"
#include "graph/capture/shapes_only.h"

namespace penstock {
namespace {

// Tokens, or embedded ones if the vocabulary is sharded.
at::Tensor FirstInput(const TrainConfig& config, std::int64_t length) {
  if (!config.parallel.shard_vocabulary) return at::zeros({config.batch, length}, at::kLong);
  const at::ScalarType dtype = config.precision == "bf16" ? at::kBFloat16 : at::kFloat;
  return at::zeros({config.batch, length, config.model.dim}, dtype).requires_grad_(true);
}

}  // namespace

Result<std::shared_ptr<StageModule>> WorkingStage(const TrainConfig& config,
                                                  const LayerRange& range) {
  PENSTOCK_TRY(std::shared_ptr<StageModule> module, BuildStage(config.model, range));
  if (config.precision != "bf16") return module;
  return CastStage(*module, config.model, range, at::kBFloat16);
}

Result<std::vector<at::Tensor>> ExampleInputs(const TrainConfig& config,
                                              std::span<const LayerRange> previous,
                                              std::int64_t length) {
  const at::AutoGradMode with_gradients(true);
  std::vector<at::Tensor> values;
  {
    std::optional<ShapesOnly> shapes;
    if (ShapesOnly::Current() == nullptr) shapes.emplace();
    values = {FirstInput(config, length)};
    for (const LayerRange& range : previous) {
      PENSTOCK_TRY(const std::shared_ptr<StageModule> module,
                   WorkingStage(config, WithPlane(range, config)));
      values = module->ForwardAll(values);
    }
  }
  for (at::Tensor& value : values) {
    const bool has_gradient = value.requires_grad();
    value = at::zeros(value.sizes(), value.scalar_type()).requires_grad_(has_gradient);
  }
  return values;
}

}  // namespace penstock
