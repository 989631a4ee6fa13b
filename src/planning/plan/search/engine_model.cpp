#include "plan/search/engine_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "model_spec/huggingface_config.h"
#include "model_spec/model_spec.h"

namespace penstock {
namespace {

using Sizes = std::vector<std::pair<const char*, std::string>>;

void AppendExperts(const ExpertShape& experts, Sizes& sizes) {
  constexpr const char* kBalances[] = {"none", "loss", "bias"};
  sizes.insert(sizes.end(), {{"experts", std::to_string(experts.experts)},
                             {"top_k", std::to_string(experts.top_k)},
                             {"expert_hidden", std::to_string(experts.hidden)},
                             {"shared_experts", std::to_string(experts.shared)},
                             {"dense_layers", std::to_string(experts.dense_layers)},
                             {"normalize_top_k", experts.normalizes ? "true" : "false"},
                             {"balance", kBalances[static_cast<int>(experts.balance)]}});
}

// The options of models (model_spec/models) that have a size.
Sizes SizesOf(const ModelShape& shape) {
  Sizes sizes = {{"heads", std::to_string(shape.heads)},
                 {"hidden", std::to_string(shape.hidden)},
                 {"tied", shape.tied ? "true" : "false"},
                 {"kv_heads", std::to_string(shape.kv_heads)},
                 {"head_dim", std::to_string(shape.head_dim)},
                 {"predictor", std::to_string(shape.predictors)}};
  if (shape.latent) {
    const LatentShape& latent = *shape.latent;
    sizes.insert(sizes.end(), {{"query_rank", std::to_string(latent.query_rank)},
                               {"kv_rank", std::to_string(latent.kv_rank)},
                               {"plain_dim", std::to_string(latent.plain_dim)},
                               {"rotary_dim", std::to_string(latent.rotary_dim)},
                               {"value_dim", std::to_string(latent.value_dim)}});
  }
  if (shape.experts) AppendExperts(*shape.experts, sizes);
  return sizes;
}

// What the shape of a model does not say is what it was before.
bool HasSizes(const ModelConfig& config, const ModelShape& shape) {
  if (!CheckModel(config)) return false;
  auto own = ShapeOf(config);
  if (!own) return false;
  own->name = shape.name;
  own->predictors = shape.predictors;
  if (own->latent) own->kv_heads = shape.kv_heads;
  return *own == shape;
}

ModelConfig WithSizes(std::string_view name, const ModelShape& shape, std::int64_t sequence) {
  ModelConfig config;
  config.name = std::string(name);
  config.vocabulary = shape.vocabulary;
  config.dim = shape.dim;
  config.layers = shape.layers;
  config.sequence = sequence;
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(name);
  for (const auto& [key, value] : SizesOf(shape)) {
    for (const Field& field : options->Fields()) {
      if (field.key == key) config.options[key] = value;
    }
  }
  return config;
}

Result<ModelConfig> FromFile(const ModelShape& shape, const std::string& path,
                             std::int64_t sequence) {
  PENSTOCK_TRY(ModelConfig config, ReadHuggingFaceConfig(path));
  config.sequence = sequence;
  if (HasSizes(config, shape)) return config;
  return InvalidParameter(
      "model", "{}: other options change its sizes; write them into a config.json", path);
}

}  // namespace

Result<ModelConfig> EngineModelOf(const ModelShape& shape, const std::string& source,
                                  std::int64_t sequence) {
  std::error_code ignored;
  if (std::filesystem::exists(source, ignored)) return FromFile(shape, source, sequence);
  const bool predicts = shape.predictors > 0;
  for (const std::string_view name : ModelNames()) {
    ModelConfig config = WithSizes(name, shape, sequence);
    if (predicts && !config.options.contains("predictor")) continue;
    if (HasSizes(config, shape)) return config;
  }
  return InvalidParameter("model", "{}: the engine has no model with these sizes", shape.name);
}

}  // namespace penstock
