#include "cost_model/request/model_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/kept_files.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cost_model/published_models.h"
#include "cost_model/request/model_sizes.h"
#include "cost_model/request/named_file.h"
#include "cost_model/request/read_cluster.h"
#include "cost_model/request/read_name.h"
#include "cost_model/request/read_profile.h"
#include "model_spec/huggingface_config.h"

namespace penstock {
namespace {

constexpr int kDefaultSequence = 4096;
constexpr int kGptPositions = 1024;

// "meta-llama/Meta-Llama-3-70B" is the name of a model that its config.json describes.
tl::unexpected<Error> RefuseHubName(const std::string& model) {
  const std::string name = model.substr(model.rfind('/') + 1);
  const std::vector<std::string_view> names = PublishedModelNames();
  return tl::unexpected(
      Error{ErrorCode::kNotFound,
            fmt::format("{}: there is no such file; give the path of its config.json{}",
                        Quote(model), Suggestion(name, {names.begin(), names.end()})),
            "model"});
}

Result<ModelShape> LoadShape(const std::string& model) {
  auto shape = FindPublishedModel(model);
  if (shape) return shape;
  std::error_code ignored;
  if (model.find('/') != std::string::npos && !std::filesystem::exists(model, ignored)) {
    return RefuseHubName(model);
  }
  static auto& kept = *new KeptFiles<ModelShape>;
  if (NamesFile(model)) return kept.Get(model, ReadHuggingFaceShape);
  return tl::unexpected(About("model", model, std::move(shape).error()));
}

// Formats tell the generation of a device.
Generation GenerationOf(const Device& device) {
  if (device.fp8_flops == 0) return Generation::kAmpere;
  return device.fp4_flops == 0 ? Generation::kHopper : Generation::kBlackwell;
}

Status CheckPrecision(const ModelOnCluster& model) {
  const Precision precision = model.batch.precision;
  const std::string_view name = kPrecisionNames[static_cast<std::size_t>(precision)];
  const Implementation& implementation = model.batch.profile.get();
  if (IsQuantized(precision) && !implementation.quantizes) {
    return InvalidParameter("precision",
                            "{}: {} computes in bf16, fp16 or f32; give `implementation` "
                            "transformer-engine",
                            name, implementation.name);
  }
  const auto check = [&](const Device& device) -> Status {
    if (device.flops(precision) > 0) return {};
    return InvalidParameter("precision", "{}: {} has no units for it", name, device.name);
  };
  for (const NodeGroup& group : model.cluster.groups) PENSTOCK_TRY_STATUS(check(group.device));
  return check(model.cluster.device);
}

// Returns the factor of all times on a device.
double TimeFactorOf(const ModelRequest& request, const Microbatch& batch, const Device& device) {
  if (request.time_factor) return *request.time_factor;
  const Implementation& implementation = batch.profile.get();
  if (implementation.time_factor == nullptr) return 1;
  return implementation.time_factor(device, batch.precision);
}

Status CheckCountOf(const char* name, const std::optional<int>& value, int least, int most) {
  if (!value || (*value >= least && *value <= most)) return {};
  return InvalidParameter(name, "{}: {} to {} is needed", *value, least, most);
}

}  // namespace

Result<ModelOnCluster> ModelRequest::Load() const {
  ModelOnCluster loaded;
  if (shape) {
    loaded.shape = *shape;
  } else if (const auto base = ShapeWithoutName(*model)) {
    loaded.shape = *base;
  } else {
    PENSTOCK_TRY(loaded.shape, LoadShape(*model));
  }
  PENSTOCK_TRY_STATUS(SetSizes(*this, loaded.shape));
  PENSTOCK_TRY(loaded.cluster, ReadCluster(*this));
  Cluster& cluster = loaded.cluster;
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"micro_batch_size", &micro_batch_size},
      {"sequence", &sequence},
      {"tensor", &tensor},
      {"data_parallel", &data},
      {"expert", &expert},
      {"context", &context},
      {"expert_tensor", &expert_tensor},
      {"zero_ranks", &zero_ranks}};
  for (const auto& [name, value] : counts) {
    PENSTOCK_TRY_STATUS(CheckCountOf(name, *value, 1, static_cast<int>(kMostShapeSize)));
  }
  PENSTOCK_TRY_STATUS(CheckCountOf("zero", zero, 0, 3));
  PENSTOCK_TRY_STATUS(CheckCountOf("offloaded_layers", offloaded_layers, 0, loaded.shape.layers));
  PENSTOCK_TRY_STATUS(
      CheckCountOf("layers_at_end_in_bf16", layers_at_end_in_bf16, 0, loaded.shape.layers));
  Microbatch& batch = loaded.batch;
  PENSTOCK_TRY(batch.profile, ReadProfile(*this));
  batch.profile.generation = GenerationOf(cluster.device);
  PENSTOCK_TRY(batch.precision,
               ReadName<Precision>("precision", precision.value_or("bf16"), kPrecisionNames));
  PENSTOCK_TRY_STATUS(CheckPrecision(loaded));
  PENSTOCK_TRY(cluster.speeds, ReadSpeeds(*this, batch));
  if (time_factor && *time_factor <= 0) {
    return InvalidParameter("time_factor", "{}: more than 0 is needed", *time_factor);
  }
  cluster.time_factor = TimeFactorOf(*this, batch, cluster.device);
  for (NodeGroup& group : cluster.groups) {
    group.generation = GenerationOf(group.device);
    group.time_factor = TimeFactorOf(*this, batch, group.device);
  }
  if (expert_imbalance && (*expert_imbalance < 1 || *expert_imbalance > expert.value_or(1))) {
    return InvalidParameter("expert_imbalance", "{}: 1 to `expert` ({}) is needed",
                            *expert_imbalance, expert.value_or(1));
  }
  batch.expert_imbalance = expert_imbalance.value_or(1);
  PENSTOCK_TRY(batch.context_exchange,
               ReadName<ContextExchange>("context_exchange", context_exchange.value_or("ring"),
                                         kContextExchangeNames));
  batch.context = context.value_or(1);
  batch.expert_tensor = expert_tensor.value_or(0);
  batch.sequence_parallel = sequence_parallel.value_or(true);
  loaded.zero_ranks = zero_ranks.value_or(0);
  loaded.layout = layout.value_or("");
  if (offload_modules) {
    auto parsed = ParseOffloadedModules(*offload_modules);
    if (!parsed) return InvalidParameter("offload_modules", "{}", parsed.error().line());
    batch.profile.offloaded_modules = *parsed;
  }
  if (recompute) {
    auto parsed = ParseRecompute(*recompute);
    if (!parsed) return tl::unexpected(About("recompute", *recompute, std::move(parsed).error()));
    loaded.recompute = *parsed;
  }
  if (ShapeWithoutName(loaded.shape.name) && loaded.shape.positions == kMostShapeSize) {
    loaded.shape.positions = sequence.value_or(kGptPositions);
  }
  const std::int64_t positions = loaded.shape.positions;
  const std::int64_t usual =
      positions > 0 ? std::min<std::int64_t>(positions, kDefaultSequence) : kDefaultSequence;
  batch.samples = micro_batch_size.value_or(1);
  batch.sequence = sequence ? *sequence : usual;
  batch.tensor = tensor.value_or(1);
  batch.expert = expert.value_or(1);
  loaded.data = data.value_or(1);
  loaded.zero = zero.value_or(0);
  if (loaded.zero > 0 && loaded.data * batch.context == 1) {
    return InvalidParameter("zero", "{}: there is one replica; give `data_parallel`", loaded.zero);
  }
  PENSTOCK_TRY_STATUS(CheckDivision(loaded));
  return loaded;
}

}  // namespace penstock
