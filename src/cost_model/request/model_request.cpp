#include "cost_model/request/model_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/kept_files.h"
#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "base/units.h"
#include "cost_model/implementation.h"
#include "cost_model/microbatch.h"
#include "cost_model/model_on_cluster.h"
#include "cost_model/published_models.h"
#include "cost_model/request/model_sizes.h"
#include "cost_model/request/named_file.h"
#include "cost_model/request/read_name.h"
#include "model_spec/huggingface_config.h"

namespace penstock {
namespace {

constexpr int kMostDevices = 1 << 20;

constexpr double kUsualRestart = 600;  // seconds

constexpr double kUsualStorageBandwidth = 1e9;  // bytes per second of a device
constexpr double kUsualSiteBandwidth = 1.25e9;  // 10 Gbit/s

constexpr double kUsualSiteLatency = 10e-3;  // seconds

Result<Device> LoadDevice(const std::string& device) {
  auto found = FindDevice(device);
  if (found) return found;
  static auto& kept = *new KeptFiles<Device>;
  if (NamesFile(device)) return kept.Get(device, ReadDevice);
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

// "h100+a100" with "4x8+2x8".
Status ReadGroups(const std::vector<std::string>& devices, const ModelRequest& request,
                  Cluster& cluster) {
  const std::vector<std::string> nodes = SplitAt(request.nodes.value_or(""), '+');
  if (nodes.size() != devices.size()) {
    return InvalidParameter("nodes", "{}: give the nodes of each of the {} devices (4x8+2x8)",
                            Quote(request.nodes.value_or("")), devices.size());
  }
  int all = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Cluster own;
    PENSTOCK_TRY(own.device, LoadDevice(devices[i]));
    PENSTOCK_TRY_STATUS(ReadNodes(nodes[i], own));
    if (i > 0 && own.devices_per_node != cluster.devices_per_node) {
      return InvalidParameter("nodes", "{}: nodes with equally many devices are needed",
                              Quote(*request.nodes));
    }
    cluster.devices_per_node = own.devices_per_node;
    all += own.nodes;
    cluster.groups.push_back({.device = own.device, .nodes = own.nodes});
  }
  if (all > kMostDevices / cluster.devices_per_node) {
    return InvalidParameter("nodes", "{}: give at most {} devices in all", Quote(*request.nodes),
                            kMostDevices);
  }
  cluster.device = cluster.groups.front().device;
  cluster.nodes = all;
  return {};
}

// Sets `value` to what the field says, if it is given.
Status ReadWithUnit(const char* field, const std::optional<std::string>& text,
                    Result<double> (*parse)(std::string_view), double& value) {
  if (!text) return {};
  const Result<double> parsed = parse(*text);
  if (!parsed) return InvalidParameter(field, ": {}", parsed.error().line());
  value = *parsed;
  return {};
}

// Refuses fields that have no effect without another one.
Status RefuseWithout(const char* needed,
                     std::initializer_list<std::pair<const char*, bool>> given) {
  for (const auto& [field, is_given] : given) {
    if (!is_given) continue;
    return InvalidParameter(field, "has no effect here: there is no `{}`; leave it out", needed);
  }
  return {};
}

Status ReadSites(const ModelRequest& request, Cluster& cluster) {
  if (!request.sites) {
    return RefuseWithout("sites", {{"across_sites", request.across_sites.has_value()},
                                   {"site_bandwidth", request.site_bandwidth.has_value()},
                                   {"site_latency", request.site_latency.has_value()}});
  }
  Sites& sites = cluster.sites;
  sites.count = *request.sites;
  if (sites.count < 1 || cluster.nodes % sites.count != 0) {
    return InvalidParameter("sites", "{}: they do not divide the {} `nodes`", sites.count,
                            cluster.nodes);
  }
  PENSTOCK_TRY(sites.across,
               ReadName<AcrossSites>("across_sites", request.across_sites.value_or("pipeline"),
                                     kAcrossSitesNames));
  sites.bandwidth = kUsualSiteBandwidth;
  sites.latency = kUsualSiteLatency;
  PENSTOCK_TRY_STATUS(
      ReadWithUnit("site_bandwidth", request.site_bandwidth, ParseBandwidth, sites.bandwidth));
  return ReadWithUnit("site_latency", request.site_latency, ParseSeconds, sites.latency);
}

Status ReadFailures(const ModelRequest& request, Failures& failures) {
  if (!request.failures) {
    return RefuseWithout("failures",
                         {{"restart", request.restart.has_value()},
                          {"storage_bandwidth", request.storage_bandwidth.has_value()}});
  }
  PENSTOCK_TRY_STATUS(ReadWithUnit("failures", request.failures, ParseSeconds, failures.device));
  if (failures.device == 0) {
    return InvalidParameter("failures", "{}: more than 0 is needed", Quote(*request.failures));
  }
  failures.restart = kUsualRestart;
  failures.storage_bandwidth = kUsualStorageBandwidth;
  PENSTOCK_TRY_STATUS(ReadWithUnit("restart", request.restart, ParseSeconds, failures.restart));
  return ReadWithUnit("storage_bandwidth", request.storage_bandwidth, ParseBandwidth,
                      failures.storage_bandwidth);
}

// Returns the cluster without its speeds. Errors: kInvalidArgument about the field.
Result<Cluster> ReadCluster(const ModelRequest& request) {
  Cluster cluster;
  const std::vector<std::string> devices = SplitAt(request.device.value_or(kUsualDevice), '+');
  if (devices.size() > 1) {
    PENSTOCK_TRY_STATUS(ReadGroups(devices, request, cluster));
  } else {
    PENSTOCK_TRY(cluster.device, LoadDevice(devices.front()));
    if (request.nodes) PENSTOCK_TRY_STATUS(ReadNodes(*request.nodes, cluster));
  }
  PENSTOCK_TRY_STATUS(ReadSites(request, cluster));
  PENSTOCK_TRY_STATUS(ReadFailures(request, cluster.failures));
  return cluster;
}

Status CheckPart(const char* name, const std::optional<double>& value, bool may_be_zero) {
  if (!value || (*value <= 1 && (*value > 0 || (may_be_zero && *value == 0)))) return {};
  if (may_be_zero) return InvalidParameter(name, "{}: 0 to 1 is needed", *value);
  return InvalidParameter(name, "{}: more than 0 and at most 1 is needed", *value);
}

Status CheckParts(const ModelRequest& request) {
  PENSTOCK_TRY_STATUS(CheckPart("flops_efficiency", request.flops_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("bandwidth_efficiency", request.bandwidth_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("link_efficiency", request.link_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("network_efficiency", request.network_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("hidden_communication", request.hidden_communication, true));
  return CheckPart("hidden_gradients", request.hidden_gradients, true);
}

// "2026-04" or, with the number of a patch, "2026-04-01".
bool IsRelease(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00";
  if (text.size() != 7 && text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !is_digit : text[i] != '-') return false;
  }
  return true;
}

Status SetTime(const char* field, const std::optional<std::string>& text, double& seconds) {
  if (!text) return {};
  const Result<double> parsed = ParseSeconds(*text);
  if (!parsed || *parsed < 0) {
    return InvalidParameter(field, "{}: give a time with its unit (5us)", Quote(*text));
  }
  seconds = *parsed;
  return {};
}

// Returns a part of a whole times a factor; 0, which stands for another part, stays 0.
double Scaled(double part, double factor) { return std::min(part * factor, std::max(part, 1.0)); }

double HiddenPart(double hidden, double exposed_factor) {
  if (exposed_factor == 1) return hidden;  // without rounding
  return 1 - std::min((1 - hidden) * exposed_factor, 1.0);
}

void Multiply(const SpeedFactors& factors, Speeds& speeds) {
  for (double& part : speeds.matmul) part = Scaled(part, factors.matmul);
  speeds.memory = Scaled(speeds.memory, factors.memory);
  speeds.link = Scaled(speeds.link, factors.link);
  speeds.expert_link = Scaled(speeds.expert_link, factors.link);
  speeds.network = Scaled(speeds.network, factors.network);
  speeds.expert_network = Scaled(speeds.expert_network, factors.network);
  speeds.exposed_factor = factors.exposed_communication;
  speeds.hidden_gradients = HiddenPart(speeds.hidden_gradients, factors.exposed_gradients);
  speeds.device_launch *= factors.device_launch;
  speeds.host_launch *= factors.host_launch;
}

// Errors: kInvalidArgument about the field.
Result<Profile> ReadProfile(const ModelRequest& request) {
  Profile profile;
  if (request.implementation) {
    auto found = FindImplementation(*request.implementation);
    if (!found) return InvalidParameter("implementation", ": {}", found.error().line());
    profile.implementation = *found;
  }
  PENSTOCK_TRY(
      profile.attention,
      ReadName<AttentionKernel>("attention", request.attention.value_or("auto"), kAttentionNames));
  PENSTOCK_TRY(
      profile.graphs,
      ReadName<CudaGraphs>("cuda_graphs", request.cuda_graphs.value_or("none"), kCudaGraphsNames));
  PENSTOCK_TRY(profile.dispatcher,
               ReadName<Dispatcher>("dispatcher", request.dispatcher.value_or("all-to-all"),
                                    kDispatcherNames));
  PENSTOCK_TRY(profile.moments,
               ReadName<Moments>("optimizer_states", request.optimizer_states.value_or("fp32"),
                                 kMomentNames));
  profile.offloaded_states = request.offloaded_states.value_or(0);
  PENSTOCK_TRY_STATUS(CheckPart("offloaded_states", request.offloaded_states, true));
  for (const auto& [given, flag] : {std::pair(&request.dropout, &profile.dropout),
                                    {&request.deterministic, &profile.deterministic},
                                    {&request.fused_loss, &profile.fused_loss},
                                    {&request.fused_experts, &profile.fused_experts},
                                    {&request.overlapped_experts, &profile.overlapped_experts},
                                    {&request.fp8_attention, &profile.fp8_attention},
                                    {&request.linear_biases, &profile.linear_biases},
                                    {&request.grouped_experts, &profile.grouped_experts},
                                    {&request.attention_mask, &profile.attention_mask},
                                    {&request.drops_tokens, &profile.drops_tokens},
                                    {&request.async_tensor, &profile.async_tensor},
                                    {&request.consecutive_experts, &profile.consecutive_experts},
                                    {&request.lora, &profile.lora},
                                    {&request.qkv_adapters, &profile.qkv_adapters}}) {
    *flag = given->value_or(*flag);
  }
  PENSTOCK_TRY_STATUS(CheckPart("fragmentation", request.fragmentation, true));
  profile.fragmentation = request.fragmentation.value_or(0);
  profile.deferred_head = request.deferred_head.value_or(0);
  profile.layers_at_end_in_bf16 = request.layers_at_end_in_bf16.value_or(0);
  profile.offloaded_layers = request.offloaded_layers.value_or(0);
  if (request.release && !IsRelease(*request.release)) {
    return InvalidParameter("release", "{}: YYYY-MM is needed", Quote(*request.release));
  }
  profile.release = request.release.value_or("");
  profile.fp32_gradients = request.fp32_gradients;
  const Implementation& implementation = profile.get();
  if (profile.qkv_adapters && !profile.lora) {
    return InvalidParameter("qkv_adapters", ": has no effect without `lora`");
  }
  if (profile.async_tensor && !implementation.cuts_matmuls) {
    return InvalidParameter("async_tensor",
                            ": {} does not cut matmuls into pieces; give `implementation` "
                            "torch-compile",
                            implementation.name);
  }
  if (request.fp32_gradients && !implementation.fp32_gradients) {
    return InvalidParameter("fp32_gradients", ": {} always sums gradients in fp32; leave it out",
                            implementation.name);
  }
  return profile;
}

// Returns the implementation's speeds, where the request has none of its own. Requires:
// `batch.profile` and `batch.precision` are set. Errors: kInvalidArgument about the field.
Result<Speeds> ReadSpeeds(const ModelRequest& request, const Microbatch& batch) {
  PENSTOCK_TRY_STATUS(CheckParts(request));
  Speeds speeds = batch.profile.get().speeds;
  if (request.flops_efficiency) {
    // Quantized and plain matmuls keep their relation.
    const double factor = *request.flops_efficiency / speeds.of(batch.precision);
    for (double& part : speeds.matmul) part *= factor;
  }
  if (request.bandwidth_efficiency) {
    speeds.memory = speeds.link = speeds.network = *request.bandwidth_efficiency;
  }
  // A given efficiency also applies to the exchanges of experts.
  if (request.bandwidth_efficiency || request.link_efficiency) speeds.expert_link = 0;
  if (request.bandwidth_efficiency || request.network_efficiency) speeds.expert_network = 0;
  speeds.link = request.link_efficiency.value_or(speeds.link);
  speeds.network = request.network_efficiency.value_or(speeds.network);
  speeds.hidden_communication = request.hidden_communication;
  speeds.hidden_gradients = request.hidden_gradients.value_or(speeds.hidden_gradients);
  PENSTOCK_TRY_STATUS(SetTime("device_launch", request.device_launch, speeds.device_launch));
  PENSTOCK_TRY_STATUS(SetTime("host_launch", request.host_launch, speeds.host_launch));
  Multiply(request.speed_factors, speeds);
  return speeds;
}

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
  const bool has_speed = implementation.speeds.matmul[static_cast<std::size_t>(precision)] > 0 ||
                         !IsQuantized(precision);
  if (!has_speed) {
    return InvalidParameter("precision",
                            "{}: {} computes in fp8, bf16, fp16 or f32; give `implementation` "
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
  return batch.profile.get().has_device_factors ? device.time_factor(batch.precision) : 1;
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

// Sets whether inputs are gathered again. Ranks have all tokens if they cannot divide them.
Status SetGathers(const ModelRequest& request, ModelOnCluster& loaded) {
  Microbatch& batch = loaded.batch;
  const Implementation& implementation = batch.profile.get();
  const auto divides_tokens = implementation.divides_tokens;
  if (divides_tokens != nullptr && !divides_tokens(loaded.shape, batch)) {
    batch.sequence_parallel = false;
  }
  batch.gather_again = request.gather_again.value_or(false);
  if (!batch.gather_again || implementation.gathers_once) return {};
  return InvalidParameter("gather_again", ": {} does not keep what it gathers; leave it out",
                          implementation.name);
}

// Sets what is offloaded, and what is computed again.
Status SetMemorySavings(const ModelRequest& request, ModelOnCluster& loaded) {
  if (request.offload_modules) {
    auto parsed = ParseOffloadedModules(*request.offload_modules);
    if (!parsed) return InvalidParameter("offload_modules", ": {}", parsed.error().line());
    loaded.batch.profile.offloaded_modules = *parsed;
  }
  if (request.recompute) {
    auto parsed = ParseRecompute(*request.recompute, loaded.batch.profile.get().recomputes_by_op);
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
  PENSTOCK_TRY_STATUS(SetGathers(*this, loaded));
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
