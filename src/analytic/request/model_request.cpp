#include "analytic/request/model_request.h"

#include <algorithm>
#include <filesystem>

#include "analytic/published_models.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "model_spec/huggingface_config.h"

namespace penstock {
namespace {

constexpr int kDefaultSequence = 4096;
constexpr int kMostDevices = 1 << 20;

bool NamesFile(const std::string& text) {
  std::error_code error;
  return text.find('/') != std::string::npos || text.ends_with(".json") ||
         text.ends_with(".yaml") || text.ends_with(".yml") || std::filesystem::exists(text, error);
}

Error About(std::string_view parameter, const std::string& value, Error error) {
  error.message = fmt::format("{}: {}", Quote(value), error.message);
  error.parameter = parameter;
  return error;
}

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
  if (NamesFile(model)) return ReadHuggingFaceShape(model);
  return tl::unexpected(About("model", model, std::move(shape).error()));
}

Result<Device> LoadDevice(const std::string& device) {
  auto found = FindDevice(device);
  if (found) return found;
  if (NamesFile(device)) return ReadDevice(device);
  return tl::unexpected(About("device", device, std::move(found).error()));
}

// "8x8". A number alone may mean nodes or devices.
Status ReadNodes(const std::string& text, Cluster& cluster) {
  const std::size_t by = text.find('x');
  if (const auto number = ParseInt(text); by == std::string::npos && number && *number >= 1) {
    return InvalidParameter(
        "nodes",
        "{}: give nodes and devices per node: {}x{} for {} nodes of {} devices, or 1x{} "
        "for "
        "one node of {}",
        text, *number, Cluster{}.devices_per_node, *number, Cluster{}.devices_per_node, *number,
        *number);
  }
  const auto nodes = ParseInt(text.substr(0, by));
  const auto devices = ParseInt(by == std::string::npos ? "" : text.substr(by + 1));
  const bool fits = nodes && devices && *nodes >= 1 && *devices >= 1 && *nodes <= kMostDevices &&
                    *devices <= kMostDevices / *nodes;
  if (!fits) {
    return InvalidParameter("nodes", "{}: give nodes and devices per node (8x8), at most {} in all",
                            Quote(text), kMostDevices);
  }
  cluster.nodes = *nodes;
  cluster.devices_per_node = *devices;
  return {};
}

Result<Precision> ReadPrecision(const std::string& text) {
  if (text == "bf16") return Precision::kBf16;
  if (text == "f32") return Precision::kFp32;
  return InvalidParameter("precision", "{}: give bf16 or f32{}", Quote(text),
                          Suggestion(text, {kPrecisionNames.begin(), kPrecisionNames.end()}));
}

Status CheckEfficiency(const char* name, const std::optional<double>& value) {
  if (!value || (*value > 0 && *value <= 1)) return {};
  return InvalidParameter(name, "{}: more than 0 and at most 1 is needed", *value);
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
  } else {
    PENSTOCK_TRY(loaded.shape, LoadShape(*model));
  }
  Cluster& cluster = loaded.cluster;
  PENSTOCK_TRY(cluster.device, LoadDevice(device.value_or(kUsualDevice)));
  if (nodes) PENSTOCK_TRY_STATUS(ReadNodes(*nodes, cluster));
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"micro_batch_size", &micro_batch_size},
      {"sequence", &sequence},
      {"tensor", &tensor},
      {"data_parallel", &data},
      {"expert", &expert}};
  for (const auto& [name, value] : counts) {
    PENSTOCK_TRY_STATUS(CheckCountOf(name, *value, 1, static_cast<int>(kMostShapeSize)));
  }
  PENSTOCK_TRY_STATUS(CheckCountOf("zero", zero, 0, 3));
  PENSTOCK_TRY_STATUS(CheckEfficiency("flops_efficiency", flops_efficiency));
  PENSTOCK_TRY_STATUS(CheckEfficiency("bandwidth_efficiency", bandwidth_efficiency));
  if (hidden_communication && !(*hidden_communication >= 0 && *hidden_communication <= 1)) {
    return InvalidParameter("hidden_communication", "{}: 0 to 1 is needed", *hidden_communication);
  }
  cluster.hidden_communication = hidden_communication.value_or(0);
  cluster.flops_efficiency = flops_efficiency.value_or(kFlopsEfficiency);
  cluster.bandwidth_efficiency = bandwidth_efficiency.value_or(kBandwidthEfficiency);
  Microbatch& batch = loaded.batch;
  PENSTOCK_TRY(batch.precision, ReadPrecision(precision.value_or("bf16")));
  const std::int64_t positions = loaded.shape.positions;
  const std::int64_t usual =
      positions > 0 ? std::min<std::int64_t>(positions, kDefaultSequence) : kDefaultSequence;
  batch.samples = micro_batch_size.value_or(1);
  batch.sequence = sequence ? *sequence : usual;
  batch.tensor = tensor.value_or(1);
  batch.expert = expert.value_or(1);
  loaded.data = data.value_or(1);
  loaded.zero = zero.value_or(0);
  if (loaded.zero > 0 && loaded.data == 1) {
    return InvalidParameter("zero", "{}: there is one replica; give `data_parallel`", loaded.zero);
  }
  PENSTOCK_TRY_STATUS(CheckDivision(loaded));
  return loaded;
}

Result<Costs> CostsOfChains(const ModelOnCluster& model, const PipelineDivision& division,
                            int replicas) {
  PENSTOCK_TRY(const ModelCosts of_model, CostsOfModel(model, division));
  Costs costs;
  for (int replica = 0; replica < replicas; ++replica) {
    costs.stages.insert(costs.stages.end(), of_model.stages.begin(), of_model.stages.end());
    costs.by_slice.insert(costs.by_slice.end(), of_model.by_slice.begin(), of_model.by_slice.end());
  }
  costs.topology = of_model.topology;
  costs.comm = of_model.comm;
  costs.message_bytes = of_model.message_bytes;
  costs.offload = costs.reload = of_model.offload;
  return costs;
}

}  // namespace penstock
