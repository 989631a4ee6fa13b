#include "model/model.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/nearest.h"
#include "base/quote.h"
#include "model/init.h"
#include "model/table.h"

namespace penstock {
namespace {

std::span<const ModelEntry* const> Models() {
  static const std::array kModels = {&kLlama};
  return kModels;
}

Result<const ModelEntry*> FindModel(std::string_view name) {
  for (const ModelEntry* model : Models()) {
    if (model->name == name) return model;
  }
  const std::vector<std::string_view> names = ModelNames();
  return InvalidArgument(
      "no model is named {}; {}", Quote(name),
      DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

Status CheckSizes(const ModelConfig& config) {
  const std::array<std::pair<const char*, std::int64_t>, 5> sizes = {{
      {"vocabulary", config.vocabulary},
      {"dim", config.dim},
      {"layers", config.layers},
      {"heads", config.heads},
      {"sequence", config.sequence},
  }};
  for (const auto& [name, size] : sizes) {
    if (size < 1) return InvalidArgument("model.{} is {}: at least 1 is needed", name, size);
  }
  if (config.hidden < 0 || config.kv_heads < 0) {
    return InvalidArgument("model.hidden and model.kv_heads are at least 0 (0: the default)");
  }
  return {};
}

}  // namespace

// Models that override it take the tensor over.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
torch::Tensor StageModule::ForwardSlice(torch::Tensor, SequenceContext&) {
  TORCH_CHECK(false, "this model cannot run a sequence in slices");
}

std::vector<std::string_view> ModelNames() {
  std::vector<std::string_view> names;
  for (const ModelEntry* model : Models()) names.push_back(model->name);
  return names;
}

Status CheckModel(const ModelConfig& config) {
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  PENSTOCK_TRY_STATUS(CheckSizes(config));
  return model->check(config);
}

Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts) {
  if (stages < 1) return InvalidArgument("a model is cut into at least 1 stage, not {}", stages);
  if (layers < stages) {
    return InvalidArgument(
        "{} layers cannot fill {} stages: give model.layers of at least {}, or fewer ranks or "
        "chunks",
        layers, stages, stages);
  }
  std::vector<std::int64_t> taken(counts.begin(), counts.end());
  if (taken.empty()) {
    for (int stage = 0; stage < stages; ++stage) {
      taken.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
    }
  }
  const std::int64_t sum = std::accumulate(taken.begin(), taken.end(), std::int64_t{0});
  if (static_cast<int>(taken.size()) != stages || sum != layers ||
      std::any_of(taken.begin(), taken.end(), [](std::int64_t count) { return count < 1; })) {
    return InvalidArgument(
        "layers of the stages are [{}]: {} stages need {} numbers of at least 1 that add up to {}",
        fmt::join(taken, ", "), stages, stages, layers);
  }
  std::vector<LayerRange> ranges;
  std::int64_t begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t end = begin + taken[stage];
    ranges.push_back({begin, end, stage == 0, stage == stages - 1});
    begin = end;
  }
  return ranges;
}

Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config,
                                                const LayerRange& range) {
  PENSTOCK_TRY_STATUS(CheckModel(config));
  if (range.begin < 0 || range.begin > range.end || range.end > config.layers) {
    return InvalidArgument("layers {} to {} of a model of {} layers", range.begin, range.end,
                           config.layers);
  }
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  std::shared_ptr<StageModule> stage = model->build(config, range);
  // Without memory (shapes only) there is nothing to fill.
  const auto parameters = stage->parameters();
  const bool has_memory = parameters.empty() || parameters[0].const_data_ptr() != nullptr;
  if (has_memory) InitializeParameters(*stage, config);
  stage->eval();
  return stage;
}

bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other) {
  const auto model = FindModel(config.name);
  if (!model || one.embedding != other.embedding || one.head != other.head) return false;
  if (one.begin == other.begin) return one.end == other.end;
  return (*model)->layers_alike && one.end - one.begin == other.end - other.begin;
}

Result<std::shared_ptr<StageModule>> CastStage(StageModule& stage, const ModelConfig& config,
                                               const LayerRange& range, at::ScalarType dtype) {
  PENSTOCK_TRY(std::shared_ptr<StageModule> cast, BuildStage(config, range));
  const auto from = stage.named_parameters();
  for (auto& parameter : cast->named_parameters()) {
    parameter.value().set_data(from[parameter.key()].detach().to(dtype));
  }
  return cast;
}

}  // namespace penstock
