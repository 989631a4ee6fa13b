#include "model/model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>

#include "model/init.h"
#include "model/model_entry.h"

namespace penstock {

#define PENSTOCK_MODEL(spec, entry) \
  ModelSpec spec();                 \
  ModelEntry entry(ModelSpec model);
#include "model_spec/models.def"
#undef PENSTOCK_MODEL

namespace {

// A deque, because FindModelEntry returns pointers to entries.
std::deque<ModelEntry>& Entries() {
  static std::deque<ModelEntry> entries = {
#define PENSTOCK_MODEL(spec, entry) entry(spec()),
#include "model_spec/models.def"
#undef PENSTOCK_MODEL
  };
  return entries;
}

}  // namespace

const ModelEntry* FindModelEntry(std::string_view name) {
  const std::deque<ModelEntry>& entries = Entries();
  const auto found = std::ranges::find(entries, name, &ModelSpec::name);
  return found == entries.end() ? nullptr : &*found;
}

Status AddModel(ModelEntry model) {
  if (model.name.empty() || !model.build || !model.initialize) {
    return InvalidArgument("a model needs a name, a build function and an initialize function");
  }
  PENSTOCK_TRY_STATUS(AddModelSpec(model));
  Entries().push_back(std::move(model));
  return {};
}

// Overrides take ownership of the tensor.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
torch::Tensor StageModule::ForwardSlice(torch::Tensor, SequenceContext&) {
  TORCH_CHECK(false, "this model cannot run sequence slices");
}

torch::Tensor StageModule::Loss(std::span<const torch::Tensor> outputs,
                                const torch::Tensor& targets) {
  const torch::Tensor logits = outputs.front().to(at::kFloat);
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}));
}

Result<std::shared_ptr<StageModule>> BuildUninitializedStage(const ModelConfig& config,
                                                             const LayerRange& range) {
  PENSTOCK_TRY_STATUS(CheckModel(config));
  if (range.begin < 0 || range.begin > range.end || range.end > config.layers) {
    return InvalidArgument("layers {} to {} are not layers of a model with {} layers", range.begin,
                           range.end, config.layers);
  }
  PENSTOCK_TRY_STATUS(CheckExpertRanks(config, range.expert_ranks));
  PENSTOCK_TRY_STATUS(CheckTensorRanks(config, range.tensor_ranks, range.has_whole_experts));
  std::shared_ptr<StageModule> stage = FindModelEntry(config.name)->build(config, range);
  stage->eval();
  return stage;
}

Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config,
                                                const LayerRange& range) {
  PENSTOCK_TRY(std::shared_ptr<StageModule> stage, BuildUninitializedStage(config, range));
  // Under ShapesOnly, parameters have no memory.
  const auto parameters = stage->parameters();
  const bool has_memory = parameters.empty() || parameters[0].const_data_ptr() != nullptr;
  if (has_memory) InitializeParameters(*FindModelEntry(config.name), config, range, *stage);
  return stage;
}

void MoveStage(StageModule& stage, c10::Device device) {
  const torch::NoGradGuard no_grad;
  const auto move = [device](const torch::Tensor& tensor) {
    if (!tensor.defined() || tensor.device() == device) return;
    // Not set_data, which only some types of devices allow.
    const torch::Tensor moved = tensor.detach().to(device);
    tensor.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  };
  for (const torch::Tensor& parameter : stage.parameters()) move(parameter);
  for (const torch::Tensor& buffer : stage.buffers()) move(buffer);
}

c10::Device DeviceOf(const StageModule& stage) {
  const std::vector<torch::Tensor> parameters = stage.parameters();
  return parameters.empty() ? c10::Device(c10::kCPU) : parameters.front().device();
}

torch::Tensor InitialRows(const ModelConfig& config, std::string_view parameter,
                          std::span<const std::int64_t> shape, std::int64_t begin,
                          std::int64_t end) {
  const torch::NoGradGuard no_grad;
  torch::Tensor all = at::empty(at::IntArrayRef(shape.data(), shape.size()), at::kFloat);
  FindModelEntry(config.name)
      ->initialize(config, parameter, all, GeneratorOf(config.seed, parameter));
  return all.narrow(0, begin, end - begin).clone();
}

bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other) {
  const ModelSpec* const model = FindModelSpec(config.name);
  if (model == nullptr || one.embedding != other.embedding || one.head != other.head) return false;
  if (one.begin == other.begin) return one.end == other.end;
  if (!model->first_alike_layer || one.end - one.begin != other.end - other.begin) return false;
  return std::min(one.begin, other.begin) >= model->first_alike_layer(config);
}

Result<std::shared_ptr<StageModule>> CastStage(StageModule& stage, const ModelConfig& config,
                                               const LayerRange& range, at::ScalarType dtype) {
  PENSTOCK_TRY(std::shared_ptr<StageModule> cast, BuildUninitializedStage(config, range));
  const auto from = stage.named_parameters();
  for (auto& parameter : cast->named_parameters()) {
    parameter.value().set_data(from[parameter.key()].detach().to(dtype));
  }
  return cast;
}

}  // namespace penstock
