#include "model/model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <numeric>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "model/init.h"
#include "model/model_entry.h"

namespace penstock {

#define PENSTOCK_MODEL(row) ModelEntry row();
#include "model/models.def"
#undef PENSTOCK_MODEL

namespace {

std::span<const ModelEntry> Table() {
  static const std::vector<ModelEntry> kTable = {
#define PENSTOCK_MODEL(row) row(),
#include "model/models.def"
#undef PENSTOCK_MODEL
  };
  return kTable;
}

struct NoOptions : ModelOptions {
  std::vector<Field> Fields() override { return {}; }
};

// A deque, because Lookup returns pointers to entries.
std::deque<ModelEntry>& AddedModels() {
  static std::deque<ModelEntry> added;
  return added;
}

const ModelEntry* Lookup(std::string_view name) {
  for (const ModelEntry& model : Table()) {
    if (model.name == name) return &model;
  }
  for (const ModelEntry& model : AddedModels()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

Result<const ModelEntry*> FindModel(std::string_view name) {
  if (const ModelEntry* model = Lookup(name)) return model;
  const std::vector<std::string_view> names = ModelNames();
  return InvalidArgument(
      "model.name: no model is named {}; {}", Quote(name),
      DidYouMean(name, names, fmt::format("there are {}", fmt::join(names, ", "))));
}

Status CheckSizes(const ModelConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"vocabulary", config.vocabulary},
                                                        {"dim", config.dim},
                                                        {"layers", config.layers},
                                                        {"sequence", config.sequence}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) return InvalidArgument("model.{} is {}; it must be at least 1", name, size);
  }
  // Each layer is a module, and about 25 nodes of a graph.
  constexpr std::int64_t kMostLayers = 10'000;
  if (config.layers > kMostLayers) {
    return InvalidArgument("model.layers is {}; it must be at most {}", config.layers, kMostLayers);
  }
  return {};
}

}  // namespace

const ModelEntry* FindModelEntry(std::string_view name) { return Lookup(name); }

Status AddModel(ModelEntry model) {
  if (model.name.empty() || !model.build || !model.initialize) {
    return InvalidArgument("a model needs a name, a build function and an initialize function");
  }
  if (Lookup(model.name) != nullptr) {
    return InvalidArgument("a model named {} already exists", Quote(model.name));
  }
  AddedModels().push_back(std::move(model));
  return {};
}

std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model) {
  const ModelEntry* const entry = Lookup(model);
  if (entry == nullptr) return nullptr;
  return entry->options ? entry->options() : std::make_unique<NoOptions>();
}

Status ReadOptions(const ModelConfig& config, ModelOptions& options) {
  const std::vector<Field> fields = options.Fields();
  for (const auto& [key, text] : config.options) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&key = key](const Field& each) { return each.key == key; });
    if (field == fields.end()) {
      return InvalidArgument("model.{}: model {} has no such option", key, Quote(config.name));
    }
    const Status status = SetField(*field, text);
    if (!status) return InvalidArgument("model.{}", status.error().line());
  }
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

std::vector<std::string_view> ModelNames() {
  std::vector<std::string_view> names;
  for (const ModelEntry& model : Table()) names.push_back(model.name);
  for (const ModelEntry& model : AddedModels()) names.push_back(model.name);
  return names;
}

std::string_view ModelSummary(std::string_view name) {
  const ModelEntry* const model = Lookup(name);
  return model == nullptr ? std::string_view() : model->summary;
}

Status CheckModel(const ModelConfig& config) {
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  PENSTOCK_TRY_STATUS(CheckSizes(config));
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  PENSTOCK_TRY_STATUS(ReadOptions(config, *options));
  if (config.document_end >= 0 && !model->separates_documents) {
    return InvalidArgument("data.document_mask: model {} does not separate documents; remove it",
                           Quote(config.name));
  }
  return model->check ? model->check(config) : Status();
}

Status CheckExpertRanks(const ModelConfig& config, int ranks) {
  if (ranks == 1) return {};
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  if (!model->experts) {
    return InvalidArgument("parallel.expert {}: model {} has no experts; leave it at 1", ranks,
                           config.name);
  }
  const std::int64_t experts = model->experts(config);
  if (ranks >= 1 && experts % ranks == 0) return {};
  return InvalidArgument("parallel.expert {} does not divide the {} experts (model.experts)", ranks,
                         experts);
}

bool IsPerExpert(const ModelConfig& config, std::string_view parameter) {
  const ModelEntry* const model = Lookup(config.name);
  return model != nullptr && model->is_per_expert != nullptr && model->is_per_expert(parameter);
}

Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts) {
  if (stages < 1) return InvalidArgument("a model has at least 1 stage, not {}", stages);
  if (layers < stages) {
    return InvalidArgument(
        "{} layers cannot fill {} stages; set model.layers to at least {}, or use fewer ranks or "
        "chunks",
        layers, stages, stages);
  }
  std::vector<std::int64_t> lengths(counts.begin(), counts.end());
  if (lengths.empty()) {
    for (int stage = 0; stage < stages; ++stage) {
      lengths.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
    }
  }
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (static_cast<int>(lengths.size()) != stages || sum != layers ||
      std::any_of(lengths.begin(), lengths.end(), [](std::int64_t count) { return count < 1; })) {
    return InvalidArgument(
        "layers per stage are [{}]; {} stages need {} numbers of at least 1 that add up to {}",
        fmt::join(lengths, ", "), stages, stages, layers);
  }
  std::vector<LayerRange> ranges;
  std::int64_t begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t end = begin + lengths[stage];
    ranges.push_back({begin, end, stage == 0, stage == stages - 1});
    begin = end;
  }
  return ranges;
}

Result<std::shared_ptr<StageModule>> BuildUninitializedStage(const ModelConfig& config,
                                                             const LayerRange& range) {
  PENSTOCK_TRY_STATUS(CheckModel(config));
  if (range.begin < 0 || range.begin > range.end || range.end > config.layers) {
    return InvalidArgument("layers {} to {} are not layers of a model with {} layers", range.begin,
                           range.end, config.layers);
  }
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  PENSTOCK_TRY_STATUS(CheckExpertRanks(config, range.expert_ranks));
  std::shared_ptr<StageModule> stage = model->build(config, range);
  stage->eval();
  return stage;
}

Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config,
                                                const LayerRange& range) {
  PENSTOCK_TRY(std::shared_ptr<StageModule> stage, BuildUninitializedStage(config, range));
  // Under ShapesOnly, parameters have no memory.
  const auto parameters = stage->parameters();
  const bool has_memory = parameters.empty() || parameters[0].const_data_ptr() != nullptr;
  if (has_memory) InitializeParameters(*Lookup(config.name), config, range, *stage);
  return stage;
}

torch::Tensor InitialRows(const ModelConfig& config, std::string_view parameter,
                          std::span<const std::int64_t> shape, std::int64_t begin,
                          std::int64_t end) {
  const torch::NoGradGuard no_grad;
  torch::Tensor all = at::empty(at::IntArrayRef(shape.data(), shape.size()), at::kFloat);
  Lookup(config.name)->initialize(config, parameter, all, GeneratorOf(config.seed, parameter));
  return all.narrow(0, begin, end - begin).clone();
}

Result<VocabularyTables> VocabularyTablesOf(const ModelConfig& config) {
  PENSTOCK_TRY(const ModelEntry* model, FindModel(config.name));
  if (model->vocabulary) return model->vocabulary(config);
  return InvalidArgument(
      "parallel.shard_vocabulary: model {} does not declare its embedding and head; set it to "
      "false",
      config.name);
}

std::vector<SharedParameter> SharedParameters(const ModelConfig& config,
                                              std::span<const LayerRange> ranges) {
  std::vector<SharedParameter> shared;
  const ModelEntry* const model = Lookup(config.name);
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

bool AreAlike(const ModelConfig& config, const LayerRange& one, const LayerRange& other) {
  const auto model = FindModel(config.name);
  if (!model || one.embedding != other.embedding || one.head != other.head) return false;
  if (one.begin == other.begin) return one.end == other.end;
  if (!(*model)->first_alike_layer || one.end - one.begin != other.end - other.begin) return false;
  return std::min(one.begin, other.begin) >= (*model)->first_alike_layer(config);
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
