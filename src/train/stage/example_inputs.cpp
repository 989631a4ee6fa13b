#include "train/stage/example_inputs.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <optional>

#include "graph/capture/shapes_only.h"

namespace penstock {

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
    values = {at::zeros({config.batch, length}, at::kLong)};
    for (const LayerRange& range : previous) {
      PENSTOCK_TRY(const std::shared_ptr<StageModule> module, WorkingStage(config, range));
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
