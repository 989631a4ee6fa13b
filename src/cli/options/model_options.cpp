#include "cli/options/model_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "analytic/huggingface_shape.h"
#include "analytic/published_models.h"
#include "base/index.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "cli/offered_values.h"
#include "cli/options/option_values.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 2> kPrecisionNames = {"bf16", "f32"};
constexpr const char* kDefaultDevice = "h100";
constexpr int kDefaultSequence = 4096;
constexpr IntRange kPositive{.least = 1};
constexpr int kMostDevices = 1 << 20;

bool NamesFile(const std::string& text) {
  std::error_code error;
  return text.find('/') != std::string::npos || text.ends_with(".json") ||
         text.ends_with(".yaml") || text.ends_with(".yml") || std::filesystem::exists(text, error);
}

Result<ModelShape> LoadShape(const std::string& model) {
  auto shape = FindPublishedModel(model);
  if (shape) return shape;
  if (NamesFile(model)) return ReadHuggingFaceShape(model);
  return MakeError(shape.error().code, "--model: {}", shape.error().message);
}

Result<Device> LoadDevice(const std::string& device) {
  auto found = FindDevice(device);
  if (found) return found;
  if (NamesFile(device)) return ReadDevice(device);
  return MakeError(found.error().code, "--device: {}", found.error().message);
}

// "8x8", or "8": one node.
Status ReadNodes(const std::string& text, Cluster& cluster) {
  const std::size_t by = text.find('x');
  const auto nodes = by == std::string::npos ? Result<int>(1) : ParseInt(text.substr(0, by));
  const auto devices = ParseInt(by == std::string::npos ? text : text.substr(by + 1));
  const bool fits = nodes && devices && *nodes >= 1 && *devices >= 1 && *nodes <= kMostDevices &&
                    *devices <= kMostDevices / *nodes;
  if (!fits) {
    return InvalidArgument("--nodes {}: give nodes and devices per node (8x8), at most {} in all",
                           Quote(text), kMostDevices);
  }
  cluster.nodes = *nodes;
  cluster.devices_per_node = *devices;
  return {};
}

Result<Precision> ReadPrecision(const std::string& text) {
  if (text == "bf16") return Precision::kBf16;
  if (text == "f32") return Precision::kFp32;
  return InvalidArgument("--precision {}: give bf16 or f32{}", Quote(text),
                         Suggestion(text, {kPrecisionNames.begin(), kPrecisionNames.end()}));
}

Status CheckEfficiency(const char* option, const std::optional<double>& value) {
  if (!value || (*value > 0 && *value <= 1)) return {};
  return InvalidArgument("{} {}: more than 0 and at most 1 is needed", option, *value);
}

Status CheckCountOf(const char* option, const std::optional<int>& value, int least, int most) {
  if (!value || (*value >= least && *value <= most)) return {};
  return InvalidArgument("{} {}: {} to {} is needed", option, *value, least, most);
}

std::string InBytes(double bytes) { return FormatBytes(static_cast<std::int64_t>(bytes)); }

double Largest(const std::vector<double>& states) {
  return states.empty() ? 0 : *std::ranges::max_element(states);
}

// Names, or a file.
OfferedValues OfferedNames(const std::vector<std::string_view>& names) {
  OfferedValues offered;
  for (const std::string_view name : names) offered.values.push_back({std::string(name)});
  offered.paths = OfferedPaths::kFiles;
  return offered;
}

}  // namespace

void PricedModel::Define(CLI::App& app) {
  app.option_defaults()->group("Costs of a model");
  Offer(AddText(app, "--model", model,
                "Price a model in seconds and bytes: a config.json of Hugging Face, or one of " +
                    fmt::format("{}", fmt::join(PublishedModelNames(), ", ")))
            ->type_name("MODEL"),
        [] { return OfferedNames(PublishedModelNames()); });
  Offer(AddText(app, "--device", device,
                fmt::format("What trains it: a YAML file with its peaks, or one of {} (default {})",
                            fmt::join(DeviceNames(), ", "), kDefaultDevice))
            ->type_name("DEVICE"),
        [] { return OfferedNames(DeviceNames()); });
  AddText(app, "--nodes", nodes,
          "Nodes and devices per node (default 1x8). --ranks is by default the number of devices, "
          "divided by --tensor and --data")
      ->type_name("NxG");
  AddInt(app, "--micro-batch-size", micro_batch_size, "Samples per microbatch (default 1)",
         kPositive);
  AddInt(app, "--sequence", sequence, "Tokens per sample (default 4096; 1024 for gpt2)", kPositive);
  Offer(AddText(app, "--precision", precision, "bf16 or f32 (default bf16, with fp32 masters)")
            ->type_name("DTYPE"),
        {kPrecisionNames.begin(), kPrecisionNames.end()});
  AddInt(app, "--tensor", tensor, "Devices that divide each layer (default 1)", kPositive);
  AddInt(app, "--data", data, "Replicas of the pipeline (default 1)", kPositive);
  AddInt(app, "--expert", expert,
         "Replicas that divide the experts of each layer, a divisor of --data (default 1)",
         kPositive);
  AddInt(app, "--zero", zero,
         "What replicas divide: 1 optimizer state, 2 and gradients, 3 and weights (default 0)");
  AddNumber(app, "--flops-efficiency", flops_efficiency,
            fmt::format("Part of the peak FLOP/s that matmuls and attention reach (default {})",
                        kFlopsEfficiency));
  AddNumber(
      app, "--bandwidth-efficiency", bandwidth_efficiency,
      fmt::format("Part of the bandwidth of memory and links (default {})", kBandwidthEfficiency));
  AddNumber(app, "--hidden-communication", hidden_communication,
            "Part of the communication of --tensor and --expert that compute hides (default 0)");
}

std::vector<std::string> PricedModel::Given() const {
  const std::pair<const char*, bool> options[] = {
      {"--model", model.has_value()},
      {"--device", device.has_value()},
      {"--nodes", nodes.has_value()},
      {"--micro-batch-size", micro_batch_size.has_value()},
      {"--sequence", sequence.has_value()},
      {"--precision", precision.has_value()},
      {"--tensor", tensor.has_value()},
      {"--data", data.has_value()},
      {"--expert", expert.has_value()},
      {"--zero", zero.has_value()},
      {"--flops-efficiency", flops_efficiency.has_value()},
      {"--bandwidth-efficiency", bandwidth_efficiency.has_value()},
      {"--hidden-communication", hidden_communication.has_value()}};
  std::vector<std::string> given;
  for (const auto& [option, is_given] : options) {
    if (is_given) given.emplace_back(option);
  }
  return given;
}

Result<ModelOnCluster> PricedModel::Load() const {
  ModelOnCluster loaded;
  PENSTOCK_TRY(loaded.shape, LoadShape(*model));
  Cluster& cluster = loaded.cluster;
  PENSTOCK_TRY(cluster.device, LoadDevice(device.value_or(kDefaultDevice)));
  if (nodes) PENSTOCK_TRY_STATUS(ReadNodes(*nodes, cluster));
  const std::pair<const char*, const std::optional<int>*> counts[] = {
      {"--micro-batch-size", &micro_batch_size},
      {"--sequence", &sequence},
      {"--tensor", &tensor},
      {"--data", &data},
      {"--expert", &expert}};
  for (const auto& [option, value] : counts) {
    PENSTOCK_TRY_STATUS(CheckCountOf(option, *value, 1, static_cast<int>(kMostShapeSize)));
  }
  PENSTOCK_TRY_STATUS(CheckCountOf("--zero", zero, 0, 3));
  PENSTOCK_TRY_STATUS(CheckEfficiency("--flops-efficiency", flops_efficiency));
  PENSTOCK_TRY_STATUS(CheckEfficiency("--bandwidth-efficiency", bandwidth_efficiency));
  if (hidden_communication && !(*hidden_communication >= 0 && *hidden_communication <= 1)) {
    return InvalidArgument("--hidden-communication {}: 0 to 1 is needed", *hidden_communication);
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
    return InvalidArgument("--zero {}: there is one replica; give --data", loaded.zero);
  }
  PENSTOCK_TRY_STATUS(CheckDivision(loaded));
  return loaded;
}

Result<int> PricedModel::Ranks() const {
  PENSTOCK_TRY(const ModelOnCluster loaded, Load());
  return PipelineRanks(loaded);
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

Result<std::vector<double>> StatesByRank(const ModelOnCluster& model, const Placement& placement,
                                         bool shards_vocabulary) {
  PipelineDivision division{.stages = placement.chain_length()};
  if (shards_vocabulary) division.vocabulary_ranks = placement.ranks();
  PENSTOCK_TRY(const ModelCosts costs, CostsOfModel(model, division));
  std::vector<double> states;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double bytes = 0;
    for (const int stage : placement.stages_of(rank)) {
      bytes += costs.states[Index(placement.model_stage(stage))].total();
    }
    states.push_back(bytes);
  }
  return states;
}

double MemoryLeft(const ModelOnCluster& model, const std::vector<double>& states) {
  return std::max(0.0, model.cluster.device.memory - Largest(states));
}

Placement PlacementOf(const Algorithm& algorithm, const ScheduleParams& params) {
  switch (algorithm.placement) {
    case PlacementForm::kLooped:
      return Placement::Looped(params.ranks, params.chunks);
    case PlacementForm::kVee:
    case PlacementForm::kZigzag:
      return Placement::Zigzag(params.ranks, params.chunks);
    case PlacementForm::kBidirectional:
      return Placement::Bidirectional(params.ranks);
    case PlacementForm::kLinear:
    case PlacementForm::kOther:
      break;
  }
  return Placement::Looped(params.ranks, params.chunks);
}

std::string DescribeModel(const ModelOnCluster& model, const std::vector<double>& states) {
  const double memory = model.cluster.device.memory, largest = Largest(states);
  std::string text = fmt::format(
      "weights, gradients and optimizer state of {} take up to {} of the {} of a device ({})",
      model.shape.name, InBytes(largest), InBytes(memory), model.cluster.device.name);
  if (largest > memory) text += ": add devices, or set --tensor, --expert or --zero";
  return text;
}

}  // namespace penstock
