#include "schedule/cost_files/stage_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace penstock {
namespace {

constexpr std::string_view kWholeBackward = "backward";

// The stages of a profile by their keys.
constexpr std::pair<std::string_view, CostsByDepth StageProfile::*> kPlaces[] = {
    {"first", &StageProfile::first},
    {"middle", &StageProfile::middle},
    {"last", &StageProfile::last}};

constexpr std::pair<std::string_view, StageCosts CostsByDepth::*> kParts[] = {
    {"stage", &CostsByDepth::stage}, {"layer", &CostsByDepth::layer}};

// The connections of a profile by their keys, and what each has.
constexpr std::pair<std::string_view, ConnectionCosts StageProfile::*> kConnections[] = {
    {"between_threads", &StageProfile::between_threads},
    {"between_processes", &StageProfile::between_processes}};

constexpr std::pair<std::string_view, double ConnectionCosts::*> kConnectionCosts[] = {
    {"latency", &ConnectionCosts::latency},
    {"message", &ConnectionCosts::message},
    {"all_reduce_latency", &ConnectionCosts::all_reduce_latency},
    {"all_reduce_bandwidth", &ConnectionCosts::all_reduce_bandwidth}};

// The passes that add updates.
constexpr std::array<std::string_view, 2> kUpdates = {"optimizer", "optimizer=post-validation"};

bool GrowsWithLayers(const StageCost& cost) {
  return cost.layers == OverLayers::kSum && cost.kind != CostKind::kFactor;
}

StageCosts AtDepth(const CostsByDepth& costs, std::int64_t layers) {
  StageCosts stage = costs.stage;
  for (const StageCost& cost : kStageCosts) {
    if (!GrowsWithLayers(cost)) continue;
    stage.*cost.value += static_cast<double>(layers) * costs.layer.*cost.value;
  }
  return stage;
}

// A stage that is both first and last has no stage after it, so a layer costs what it does there.
CostsByDepth OnlyStage(const StageProfile& profile) {
  CostsByDepth only = profile.first;
  for (const StageCost& cost : kStageCosts) {
    if (!GrowsWithLayers(cost)) continue;
    only.stage.*cost.value =
        std::max(0.0, profile.first.stage.*cost.value + profile.last.stage.*cost.value -
                          profile.middle.stage.*cost.value);
  }
  return only;
}

std::string CostsText(const StageCosts& costs) {
  std::string text;
  const auto add = [&](std::string_view key, double value) {
    text += fmt::format("{}{}: {:.6g}", text.empty() ? "" : ", ", key, value);
  };
  for (const StageCost& cost : kStageCosts) {
    if (cost.in_files && GrowsWithLayers(cost) && costs.*cost.value != 0) {
      add(cost.name, costs.*cost.value);
    }
  }
  if (costs.saved_by_whole_backward != 0) add(kWholeBackward, costs.Backward());
  return text;
}

std::string QuotedValue(std::string_view value) {
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

Status SetCost(const YamlMap& map, const StageCost& cost, StageCosts& costs) {
  const std::string key(cost.name);
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  if (!value) return {};
  const Status status = CheckCost(cost, *value);
  if (!status) return map.Refuse(key, "{}", status.error().line());
  costs.*cost.value = *value;
  return {};
}

Result<StageCosts> ReadPartCosts(const YamlMap& map) {
  std::vector<std::string_view> known = {kWholeBackward};
  StageCosts costs = NoCosts();
  for (const StageCost& cost : kStageCosts) {
    if (!cost.in_files || !GrowsWithLayers(cost)) continue;
    known.push_back(cost.name);
    PENSTOCK_TRY_STATUS(SetCost(map, cost, costs));
  }
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  PENSTOCK_TRY(const std::optional<double> backward, map.Number(std::string(kWholeBackward)));
  if (!backward) return costs;
  const double sum = costs.backward_input + costs.backward_weight;
  // The values in files are rounded.
  if (!(*backward >= 0 && *backward <= sum * (1 + 1e-5))) {
    return map.Refuse(std::string(kWholeBackward),
                      "give 0 to {}, the sum of backward_input and backward_weight", sum);
  }
  costs.saved_by_whole_backward = std::max(0.0, sum - *backward);
  return costs;
}

Result<CostsByDepth> ReadPlace(const YamlMap& map) {
  PENSTOCK_TRY_STATUS(map.RequireKnown({"stage", "layer"}));
  CostsByDepth costs;
  for (const auto& [key, part] : kParts) {
    const std::string name(key);
    costs.*part = NoCosts();
    if (!map.Has(name)) return map.Refuse(name, "a map of costs is needed");
    PENSTOCK_TRY(const YamlMap parts, YamlMap::Of(map.Node(name), name));
    PENSTOCK_TRY(costs.*part, ReadPartCosts(parts));
  }
  return costs;
}

Status ReadCount(const YamlMap& map, const std::string& key, int& count) {
  PENSTOCK_TRY(const std::optional<int> value, map.Int(key));
  if (!value || *value < 1) return map.Refuse(key, "give a number from 1 on");
  count = *value;
  return {};
}

Status ReadAmount(const YamlMap& map, const std::string& key, double most, double& amount) {
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  if (value && !(*value >= 0 && *value <= most)) return map.Refuse(key, "give 0 to {}", most);
  amount = value.value_or(0);
  return {};
}

std::string ConnectionText(const ConnectionCosts& costs) {
  std::string text;
  for (const auto& [key, cost] : kConnectionCosts) {
    text += fmt::format("{}{}: {:.4g}", text.empty() ? "" : ", ", key, costs.*cost);
  }
  return text;
}

Result<ConnectionCosts> ReadConnection(const YamlMap& map) {
  std::vector<std::string_view> known;
  for (const auto& [key, cost] : kConnectionCosts) known.push_back(key);
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  ConnectionCosts costs;
  for (const auto& [key, cost] : kConnectionCosts) {
    PENSTOCK_TRY_STATUS(ReadAmount(map, std::string(key), kMostMemory, costs.*cost));
  }
  return costs;
}

Result<std::string> ReadUpdate(const YamlMap& map) {
  PENSTOCK_TRY(const std::optional<std::string> update, map.Text("update"));
  if (!update) return std::string(kUpdates.front());
  if (std::ranges::find(kUpdates, *update) != kUpdates.end()) return *update;
  return map.Refuse("update", "give {} or {}", kUpdates.front(), kUpdates.back());
}

}  // namespace

StageCosts NoCosts() {
  StageCosts none;
  for (const StageCost& cost : kStageCosts) {
    if (cost.kind != CostKind::kFactor) none.*cost.value = 0;
  }
  return none;
}

CostsByDepth FitDepth(const StageCosts& one, const StageCosts& more, std::int64_t deep) {
  CostsByDepth fitted{NoCosts(), NoCosts()};
  const auto layers = static_cast<double>(deep);
  for (const StageCost& cost : kStageCosts) {
    if (!GrowsWithLayers(cost)) continue;
    const double shallow = one.*cost.value;
    const double all = more.*cost.value;
    // What is measured of the deeper stage holds; what a layer takes is between nothing and a
    // share.
    const double layer =
        std::clamp((all - shallow) / (layers - 1), 0.0, std::max(0.0, all / layers));
    fitted.layer.*cost.value = layer;
    fitted.stage.*cost.value = std::max(0.0, all - layers * layer);
  }
  return fitted;
}

void AddReplicas(const StageProfile& profile, int data, bool shards,
                 std::vector<StageCosts>& stages) {
  if (data == 1) return;
  const ConnectionCosts& costs = profile.between_threads;
  const double share = 1.0 / data;
  for (StageCosts& stage : stages) {
    if (shards) {
      stage.step *= share;
      stage.optimizer *= share;
    }
    stage.step += costs.all_reduce_latency;
    // Each replica sends and receives a share of the sums for every other one, twice.
    if (costs.all_reduce_bandwidth == 0) continue;
    stage.step += 2 * (1 - share) * stage.gradients / costs.all_reduce_bandwidth;
  }
}

std::vector<StageCosts> StagesOfProfile(const StageProfile& profile,
                                        const std::vector<std::int64_t>& layers, int replicas) {
  std::vector<StageCosts> chain;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    const CostsByDepth& costs = stage == 0                   ? profile.first
                                : stage + 1 == layers.size() ? profile.last
                                                             : profile.middle;
    chain.push_back(AtDepth(layers.size() == 1 ? OnlyStage(profile) : costs, layers[stage]));
  }
  std::vector<StageCosts> all;
  for (int replica = 0; replica < replicas; ++replica) {
    all.insert(all.end(), chain.begin(), chain.end());
  }
  return all;
}

std::string ToYaml(const StageProfile& profile) {
  std::string text = fmt::format(
      "profile:\n"
      "  ranks: {}\n"
      "  threads: {}\n"
      "  cores: {}\n"
      "  layers: {}\n"
      "  comm: {:.4g}\n"
      "  message_bytes: {:.0f}\n"
      "  early_gradients: {}\n"
      "  update: {}\n",
      profile.ranks, profile.threads, profile.cores, profile.layers, profile.comm,
      profile.message_bytes, profile.early_gradients, profile.update);
  for (const auto& [key, connection] : kConnections) {
    text += fmt::format("  {}: {{{}}}\n", key, ConnectionText(profile.*connection));
  }
  for (const auto& [place, costs] : kPlaces) {
    text += fmt::format("  {}:\n", place);
    for (const auto& [key, part] : kParts) {
      text += fmt::format("    {}: {{{}}}\n", key, CostsText(profile.*costs.*part));
    }
  }
  if (!profile.run.empty()) text += "  run:\n";
  for (const auto& [key, value] : profile.run) {
    text += fmt::format("    {}: {}\n", key, QuotedValue(value));
  }
  return text;
}

Result<StageProfile> ReadStageProfile(const YamlMap& map) {
  PENSTOCK_TRY_STATUS(map.RequireKnown(
      {"ranks", "threads", "cores", "layers", "comm", "message_bytes", "early_gradients", "update",
       "between_threads", "between_processes", "first", "middle", "last", "run"}));
  StageProfile profile;
  PENSTOCK_TRY_STATUS(ReadCount(map, "ranks", profile.ranks));
  PENSTOCK_TRY_STATUS(ReadCount(map, "threads", profile.threads));
  PENSTOCK_TRY_STATUS(ReadCount(map, "cores", profile.cores));
  PENSTOCK_TRY_STATUS(ReadCount(map, "layers", profile.layers));
  PENSTOCK_TRY_STATUS(ReadAmount(map, "comm", kMostTime, profile.comm));
  PENSTOCK_TRY_STATUS(ReadAmount(map, "message_bytes", kMostMemory, profile.message_bytes));
  PENSTOCK_TRY(const std::optional<bool> early, map.Bool("early_gradients"));
  profile.early_gradients = early.value_or(false);
  PENSTOCK_TRY(profile.update, ReadUpdate(map));
  for (const auto& [connection, costs] : kConnections) {
    const std::string key(connection);
    if (!map.Has(key)) continue;
    PENSTOCK_TRY(const YamlMap of, YamlMap::Of(map.Node(key), key));
    PENSTOCK_TRY(profile.*costs, ReadConnection(of));
  }
  for (const auto& [place, costs] : kPlaces) {
    const std::string key(place);
    if (!map.Has(key)) return map.Refuse(key, "a map with stage and layer is needed");
    PENSTOCK_TRY(const YamlMap of, YamlMap::Of(map.Node(key), key));
    PENSTOCK_TRY(profile.*costs, ReadPlace(of));
  }
  if (!map.Has("run")) return profile;
  PENSTOCK_TRY(const YamlMap run, YamlMap::Of(map.Node("run"), "run"));
  for (const std::string& key : run.Keys()) {
    const YAML::Node value = run.Node(key);
    if (!value.IsScalar()) return run.Refuse(key, "is no value of a training configuration");
    profile.run.emplace_back(key, value.Scalar());
  }
  return profile;
}

}  // namespace penstock
