#include "model_spec/model_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "model_spec/check_model.h"

namespace penstock {

#define PENSTOCK_MODEL(spec, entry) ModelSpec spec();
#include "model_spec/models.def"
#undef PENSTOCK_MODEL

namespace {

// A deque, because FindModelSpec returns pointers to specifications.
std::deque<ModelSpec>& Table() {
  static std::deque<ModelSpec> table = {
#define PENSTOCK_MODEL(spec, entry) spec(),
#include "model_spec/models.def"
#undef PENSTOCK_MODEL
  };
  return table;
}

struct NoOptions : ModelOptions {
  std::vector<Field> Fields() override { return {}; }
};

Result<const ModelSpec*> FindModel(std::string_view name) {
  if (const ModelSpec* model = FindModelSpec(name)) return model;
  const std::vector<std::string_view> names = ModelNames();
  return InvalidParameter(
      "model.name", ": no model is named {}; {}", Quote(name),
      DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

Status CheckSizes(const ModelConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"model.vocabulary", config.vocabulary},
                                                        {"model.dim", config.dim},
                                                        {"model.layers", config.layers},
                                                        {"model.sequence", config.sequence}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) return InvalidParameter(name, "is {}; it must be at least 1", size);
  }
  // Each layer is a module, and about 25 nodes of a graph.
  constexpr std::int64_t kMostLayers = 10'000;
  if (config.layers > kMostLayers) {
    return InvalidParameter("model.layers", "is {}; it must be at most {}", config.layers,
                            kMostLayers);
  }
  return {};
}

}  // namespace

const ModelSpec* FindModelSpec(std::string_view name) {
  const std::deque<ModelSpec>& table = Table();
  const auto found = std::ranges::find(table, name, &ModelSpec::name);
  return found == table.end() ? nullptr : &*found;
}

Status AddModelSpec(ModelSpec model) {
  if (FindModelSpec(model.name) != nullptr) {
    return InvalidArgument("a model named {} already exists", Quote(model.name));
  }
  Table().push_back(std::move(model));
  return {};
}

std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model) {
  const ModelSpec* const entry = FindModelSpec(model);
  if (entry == nullptr) return nullptr;
  return entry->options ? entry->options() : std::make_unique<NoOptions>();
}

Status ReadOptions(const ModelConfig& config, ModelOptions& options) {
  const std::vector<Field> fields = options.Fields();
  for (const auto& [key, text] : config.options) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&key = key](const Field& each) { return each.key == key; });
    if (field == fields.end()) {
      return InvalidParameter("model." + key, ": model {} has no such option", Quote(config.name));
    }
    if (Status status = SetField(*field, text); !status) {
      status.error().parameter = "model." + key;
      return status;
    }
  }
  return {};
}

std::vector<std::string_view> ModelNames() {
  std::vector<std::string_view> names;
  for (const ModelSpec& model : Table()) names.push_back(model.name);
  return names;
}

std::string_view ModelSummary(std::string_view name) {
  const ModelSpec* const model = FindModelSpec(name);
  return model == nullptr ? std::string_view() : model->summary;
}

namespace {

// Names parameters in backticks.
Status CheckUnspelled(const ModelConfig& config) {
  PENSTOCK_TRY(const ModelSpec* model, FindModel(config.name));
  PENSTOCK_TRY_STATUS(CheckSizes(config));
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  PENSTOCK_TRY_STATUS(ReadOptions(config, *options));
  if (config.document_end >= 0 && !model->separates_documents) {
    return InvalidParameter("data.document_mask",
                            ": model {} does not separate documents; remove it",
                            Quote(config.name));
  }
  return model->check ? model->check(config) : Status();
}

}  // namespace

Status CheckModel(const ModelConfig& config) {
  return CheckModel(config, [](std::string_view parameter) { return std::string(parameter); });
}

Status CheckModel(const ModelConfig& config, const Spelling& spelling) {
  Status status = CheckUnspelled(config);
  if (status) return status;
  Error error = std::move(status).error();
  if (!error.parameter.empty()) error.parameter = spelling(error.parameter);
  error.message = SpellMentions(error.message, spelling);
  return tl::unexpected(std::move(error));
}

Status CheckExpertRanks(const ModelConfig& config, int ranks) {
  if (ranks == 1) return {};
  PENSTOCK_TRY(const ModelSpec* model, FindModel(config.name));
  if (!model->experts) {
    return InvalidParameter("parallel.expert", "{}: model {} has no experts; leave it at 1", ranks,
                            config.name);
  }
  const std::int64_t experts = model->experts(config);
  if (ranks >= 1 && experts % ranks == 0) return {};
  return InvalidParameter("parallel.expert", "{} does not divide the {} experts (model.experts)",
                          ranks, experts);
}

Status CheckTensorRanks(const ModelConfig& config, int ranks, bool has_whole_experts) {
  if (ranks == 1) return {};
  PENSTOCK_TRY(const ModelSpec* model, FindModel(config.name));
  if (!model->divided) {
    return InvalidParameter("parallel.tensor",
                            "{}: model {} does not divide its matrices; leave it at 1", ranks,
                            config.name);
  }
  for (const auto& [key, size, may_repeat, of_experts] : model->divided(config)) {
    if (of_experts && has_whole_experts) continue;
    if (ranks >= 1 && (size % ranks == 0 || (may_repeat && ranks % size == 0))) continue;
    return InvalidParameter("parallel.tensor", "{} does not divide {} ({})", ranks, size, key);
  }
  return {};
}

bool IsPerExpert(const ModelConfig& config, std::string_view parameter) {
  const ModelSpec* const model = FindModelSpec(config.name);
  return model != nullptr && model->is_per_expert != nullptr && model->is_per_expert(parameter);
}

Result<ModelShape> ShapeOf(const ModelConfig& config) {
  const ModelSpec& model = *FindModelSpec(config.name);
  if (model.shape) return model.shape(config);
  return InvalidParameter("model.name", ": model {} does not declare its sizes, so it has no price",
                          config.name);
}

Result<VocabularyTables> VocabularyTablesOf(const ModelConfig& config) {
  PENSTOCK_TRY(const ModelSpec* model, FindModel(config.name));
  if (model->vocabulary) return model->vocabulary(config);
  return InvalidParameter("parallel.shard_vocabulary",
                          ": model {} does not declare its embedding and head; set it to "
                          "false",
                          config.name);
}

std::vector<SharedParameter> SharedParameters(const ModelConfig& config,
                                              std::span<const LayerRange> ranges) {
  std::vector<SharedParameter> shared;
  const ModelSpec* const model = FindModelSpec(config.name);
  if (model == nullptr || !model->shared) return shared;
  for (const SharedDeclaration& declared : model->shared(config)) {
    SharedParameter parameter{declared.name, {}, declared.instead};
    for (std::size_t stage = 0; stage < ranges.size(); ++stage) {
      if (declared.held_by(ranges[stage])) parameter.stages.push_back(static_cast<int>(stage));
    }
    if (parameter.stages.size() > 1) shared.push_back(std::move(parameter));
  }
  return shared;
}

}  // namespace penstock
