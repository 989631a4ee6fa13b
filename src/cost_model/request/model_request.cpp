#include "cost_model/request/model_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/kept_files.h"
#include "base/text/nearest.h"
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

Status CheckCounts(const ModelRequest& request, std::int64_t layers) {
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"micro_batch_size", &request.micro_batch_size},
      {"sequence", &request.sequence},
      {"tensor", &request.tensor},
      {"data_parallel", &request.data},
      {"expert", &request.expert},
      {"context", &request.context},
      {"expert_tensor", &request.expert_tensor},
      {"zero_ranks", &request.zero_ranks}};
  for (const auto& [name, value] : counts) {
    PENSTOCK_TRY_STATUS(CheckCountOf(name, *value, 1, static_cast<int>(kMostShapeSize)));
  }
  const int most = static_cast<int>(layers);
  PENSTOCK_TRY_STATUS(CheckCountOf("zero", request.zero, 0, 3));
  PENSTOCK_TRY_STATUS(CheckCountOf("offloaded_layers", request.offloaded_layers, 0, most));
  return CheckCountOf("layers_at_end_in_bf16", request.layers_at_end_in_bf16, 0, most);
}

Result<ModelShape> ShapeOf(const ModelRequest& request) {
  if (request.shape) return *request.shape;
  if (auto base = ShapeWithoutName(*request.model)) return *std::move(base);
  return LoadShape(*request.model);
}

// Sets what multiplies all times, by device.
Status SetTimeFactors(const ModelRequest& request, ModelOnCluster& loaded) {
  Cluster& cluster = loaded.cluster;
  if (request.time_factor && *request.time_factor <= 0) {
    return InvalidParameter("time_factor", "{}: more than 0 is needed", *request.time_factor);
  }
  cluster.time_factor = TimeFactorOf(request, loaded.batch, cluster.device);
  for (NodeGroup& group : cluster.groups) {
    group.generation = GenerationOf(group.device);
    group.time_factor = TimeFactorOf(request, loaded.batch, group.device);
  }
  return {};
}

// Sets how devices divide a microbatch.
Status SetDivision(const ModelRequest& request, Microbatch& batch) {
  const int expert = request.expert.value_or(1);
  const double imbalance = request.expert_imbalance.value_or(1);
  if (imbalance < 1 || imbalance > expert) {
    return InvalidParameter("expert_imbalance", "{}: 1 to `expert` ({}) is needed", imbalance,
                            expert);
  }
  batch.expert_imbalance = imbalance;
  PENSTOCK_TRY(
      batch.context_exchange,
      ReadName<ContextExchange>("context_exchange", request.context_exchange.value_or("ring"),
                                kContextExchangeNames));
  batch.tensor = request.tensor.value_or(1);
  batch.context = request.context.value_or(1);
  batch.expert = expert;
  batch.expert_tensor = request.expert_tensor.value_or(0);
  batch.sequence_parallel = request.sequence_parallel.value_or(true);
  return {};
}

// Sets what is offloaded, and what is computed again.
Status SetMemorySavings(const ModelRequest& request, ModelOnCluster& loaded) {
  if (request.offload_modules) {
    auto parsed = ParseOffloadedModules(*request.offload_modules);
    if (!parsed) return InvalidParameter("offload_modules", "{}", parsed.error().line());
    loaded.batch.profile.offloaded_modules = *parsed;
  }
  if (request.recompute) {
    auto parsed = ParseRecompute(*request.recompute);
    if (!parsed) {
      return tl::unexpected(About("recompute", *request.recompute, std::move(parsed).error()));
    }
    loaded.recompute = *parsed;
  }
  return {};
}

void SetTokens(const ModelRequest& request, ModelOnCluster& loaded) {
  std::int64_t& positions = loaded.shape.positions;
  if (ShapeWithoutName(loaded.shape.name) && positions == kMostShapeSize) {
    positions = request.sequence.value_or(kGptPositions);
  }
  const std::int64_t usual =
      positions > 0 ? std::min<std::int64_t>(positions, kDefaultSequence) : kDefaultSequence;
  loaded.batch.samples = request.micro_batch_size.value_or(1);
  loaded.batch.sequence = request.sequence ? *request.sequence : usual;
}

}  // namespace

Result<ModelOnCluster> ModelRequest::Load() const {
  ModelOnCluster loaded;
  Microbatch& batch = loaded.batch;
  PENSTOCK_TRY(loaded.shape, ShapeOf(*this));
  PENSTOCK_TRY_STATUS(SetSizes(*this, loaded.shape));
  PENSTOCK_TRY(loaded.cluster, ReadCluster(*this));
  PENSTOCK_TRY_STATUS(CheckCounts(*this, loaded.shape.layers));
  PENSTOCK_TRY(batch.profile, ReadProfile(*this));
  batch.profile.generation = GenerationOf(loaded.cluster.device);
  PENSTOCK_TRY(batch.precision,
               ReadName<Precision>("precision", precision.value_or("bf16"), kPrecisionNames));
  PENSTOCK_TRY_STATUS(CheckPrecision(loaded));
  PENSTOCK_TRY(loaded.cluster.speeds, ReadSpeeds(*this, batch));
  PENSTOCK_TRY_STATUS(SetTimeFactors(*this, loaded));
  PENSTOCK_TRY_STATUS(SetDivision(*this, batch));
  PENSTOCK_TRY_STATUS(SetMemorySavings(*this, loaded));
  SetTokens(*this, loaded);
  loaded.layout = layout.value_or("");
  loaded.zero_ranks = zero_ranks.value_or(0);
  loaded.data = data.value_or(1);
  loaded.zero = zero.value_or(0);
  if (loaded.zero > 0 && loaded.data * batch.context == 1) {
    return InvalidParameter("zero", "{}: there is one replica; give `data_parallel`", loaded.zero);
  }
  PENSTOCK_TRY_STATUS(CheckDivision(loaded));
  return loaded;
}

}  // namespace penstock
