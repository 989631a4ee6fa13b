#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/run_schedule.h"
#include "config/train_config.h"
#include "model_spec/huggingface_config.h"
#include "model_spec/model_config.h"
#include "model_spec/model_shape.h"
#include "model_spec/model_spec.h"
#include "plan/export/framework_texts.h"

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

// Returns the configuration of a model with these sizes: the one of a config.json if `source` is
// the path of one, otherwise of the first model that can have them, with its usual constants.
// Errors: kInvalidArgument if there is none.
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

constexpr std::string_view kEngine = "the engine";
constexpr int kCores = 4;  // no choice depends on it, because the file has the schedule

Result<TrainConfig> ConfigOf(const PlanJob& job, const std::string& csv) {
  const JobDivision& division = job.division;
  TrainConfig config;
  config.name = "plan";
  PENSTOCK_TRY(config.model, EngineModelOf(job.shape(), job.scenario.model.value_or(""),
                                           job.model.batch.sequence));
  config.batch = division.micro_batch;
  config.pipeline.csv = csv;
  for (const LayerRange& stage : job.stages) {
    config.pipeline.stage_layers.push_back(stage.end - stage.begin);
  }
  config.parallel.data = division.data;
  config.parallel.expert = division.expert;
  config.parallel.tensor = division.tensor;
  if (job.shape().experts) config.parallel.expert_tensor = division.expert_tensor;
  config.parallel.context = division.context;
  config.parallel.zero = division.data > 1 ? division.zero : 0;
  const Precision precision = job.model.batch.precision;
  if (precision != Precision::kFp32 && precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: {} computes in f32 or bf16",
                            job.scenario.precision.value_or(""), kEngine);
  }
  config.precision = precision == Precision::kFp32 ? "f32" : "bf16";
  return config;
}

// Keeps the lines of keys that differ, with their sections.
std::string DifferentLines(const TrainConfig& config) {
  std::string text, open_section;
  for (const KeyDifference& key : DifferentKeys(TrainConfig(), config)) {
    const std::size_t dot = key.key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.key.substr(0, dot);
    if (section != open_section) text += fmt::format("{}:\n", section);
    open_section = section;
    text += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ",
                        section.empty() ? key.key : key.key.substr(dot + 1), key.now);
  }
  return text;
}

}  // namespace

Result<std::string> TrainText(const PlanJob& job, const std::string& csv) {
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(job, kEngine, {}));
  PENSTOCK_TRY_STATUS(CheckSites(job, kEngine, kReplicasOutermost));
  PENSTOCK_TRY_STATUS(CheckPenstock(job.divided()));
  PENSTOCK_TRY(const TrainConfig config, ConfigOf(job, csv));
  const std::string text =
      "# A plan for 'penstock train'. Set data.path, steps and optimizer.lr.\n" +
      DifferentLines(config);
  PENSTOCK_TRY(TrainConfig read, ParseTrainConfig(text, "the configuration"));
  PENSTOCK_TRY_STATUS(ChooseSchedule(read, kCores));
  return text;
}

}  // namespace penstock
