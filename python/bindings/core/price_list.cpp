#include "bindings/core/price_list.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "base/units.h"
#include "schedule/cost_files/cost_list.h"
#include "schedule/cost_files/topology_config.h"
#include "schedule/pricing/action_prices.h"

namespace penstock::python {
namespace {

// Keys of a configuration that choose a schedule, or what a command does with it.
const std::vector<std::string_view> kIgnoredKeys = {
    "schedule", "csv",   "ranks",     "chunks",  "microbatches", "group", "slices",
    "waves",    "steps", "replicas",  "weights", "iteration",    "split", "memory_limit",
    "pass",     "sweep", "objective", "jitter",  "seed",         "runs",  "trace_rule"};
const std::vector<std::string_view> kPriceKeys = {
    "cost",      "stage_costs", "layer_costs", "comm",      "overlap",
    "transfers", "topology",    "price",       "time_unit", "message_bytes"};
// Prices that only the command line sets.
const std::vector<std::string_view> kUnknownPrices = {
    "launch",           "slow_rank",       "microbatch_lengths",
    "activation_bytes", "offload_sharing", "collectives"};

constexpr std::pair<const char*, std::optional<std::string> ModelRequest::*> kModelTexts[] = {
    {"model", &ModelRequest::model},
    {"device", &ModelRequest::device},
    {"nodes", &ModelRequest::nodes},
    {"precision", &ModelRequest::precision}};
constexpr std::pair<const char*, std::optional<int> ModelRequest::*> kModelCounts[] = {
    {"micro_batch_size", &ModelRequest::micro_batch_size},
    {"sequence", &ModelRequest::sequence},
    {"tensor", &ModelRequest::tensor},
    {"data", &ModelRequest::data},
    {"expert", &ModelRequest::expert},
    {"zero", &ModelRequest::zero}};
constexpr std::pair<const char*, std::optional<double> ModelRequest::*> kModelNumbers[] = {
    {"flops_efficiency", &ModelRequest::flops_efficiency},
    {"bandwidth_efficiency", &ModelRequest::bandwidth_efficiency},
    {"hidden_communication", &ModelRequest::hidden_communication}};

Status RequireKeys(const YamlMap& config) {
  for (const std::string_view key : kUnknownPrices) {
    if (!config.Has(std::string(key))) continue;
    return config.Refuse(std::string(key), "only the program prices it; leave it out");
  }
  std::vector<std::string_view> known = kIgnoredKeys;
  known.insert(known.end(), kPriceKeys.begin(), kPriceKeys.end());
  for (const auto& [key, field] : kModelTexts) known.emplace_back(key);
  for (const auto& [key, field] : kModelCounts) known.emplace_back(key);
  for (const auto& [key, field] : kModelNumbers) known.emplace_back(key);
  return config.RequireKnown(known);
}

Result<ModelRequest> ReadModel(const YamlMap& config) {
  ModelRequest model;
  for (const auto& [key, field] : kModelTexts) {
    PENSTOCK_TRY(model.*field, config.Text(key));
  }
  for (const auto& [key, field] : kModelCounts) {
    PENSTOCK_TRY(model.*field, config.Int(key));
  }
  for (const auto& [key, field] : kModelNumbers) {
    PENSTOCK_TRY(model.*field, config.Number(key));
  }
  return model;
}

Result<UniformCost> ReadUniform(const YamlMap& config) {
  PENSTOCK_TRY(const auto words, config.Texts("cost"));
  if (!words) return UniformCost();
  const auto cost = ParseCost(fmt::format("{}", fmt::join(*words, ",")));
  if (!cost) return config.Refuse("cost", "{}", cost.error().line());
  return cost;
}

// Refuses two sources of costs. Returns the key of the one that is given.
Result<std::string> SourceOf(const YamlMap& config) {
  std::string found;
  for (const char* key : {"model", "stage_costs", "layer_costs", "cost"}) {
    if (!config.Has(key)) continue;
    if (!found.empty()) {
      return config.Refuse(key, "{} says what stages cost; keep one of the two", found);
    }
    found = key;
  }
  return found;
}

Result<double> ReadSize(const YamlMap& config, const std::string& key, const std::string& text) {
  const Result<double> plain = ParseNumber(text);
  const Result<std::int64_t> bytes = ParseBytes(text);
  const double size = plain ? *plain : bytes ? static_cast<double>(*bytes) : 0;
  if (size > 0 && CheckMemory(size)) return size;
  return config.Refuse(key, "{}: give bytes, or a number with its unit (4GiB)", Quote(text));
}

// Reads a time: a number, or next to costs in seconds also one with its unit ("5ms").
Result<std::optional<double>> ReadComm(const YamlMap& config, bool in_seconds) {
  PENSTOCK_TRY(const auto text, config.Text("comm"));
  if (const auto seconds = ParseSeconds(text.value_or("")); seconds && in_seconds) {
    return std::optional(*seconds);
  }
  return config.Number("comm");
}

// Returns the price with its time in the unit of the costs: "step=2ms" as "step=0.002".
std::string InUnitOfCosts(const std::string& price, bool in_seconds) {
  const std::size_t equals = std::min(price.find('='), price.size());
  const std::string key = price.substr(0, equals);
  const auto seconds = ParseSeconds(price.substr(std::min(equals + 1, price.size())));
  if (!in_seconds || !seconds || IsMemoryPrice(key)) return price;
  return fmt::format("{}={}", key, *seconds);
}

Status CheckScales(const std::vector<StageCosts>& stages, double message_bytes) {
  const bool scaled =
      std::ranges::any_of(stages, [](const StageCosts& stage) { return stage.message_scale != 1; });
  if (!scaled || message_bytes > 0) return {};
  return InvalidArgument("message_scale has no effect without a size; give message_bytes");
}

}  // namespace

Result<PriceList> PriceList::Parse(const std::string& yaml) {
  PENSTOCK_TRY(const YAML::Node root, ParseYaml(yaml));
  PENSTOCK_TRY(const YamlMap config, YamlMap::Of(root, "the costs"));
  PENSTOCK_TRY_STATUS(RequireKeys(config));
  PENSTOCK_TRY(const std::string source, SourceOf(config));
  PriceList list;
  if (source == "model") {
    PENSTOCK_TRY(const ModelRequest request, ReadModel(config));
    if (const auto loaded = request.Load(); !loaded) return tl::unexpected(loaded.error());
    list.source_ = request;
  } else if (source == "stage_costs") {
    PENSTOCK_TRY(const CostList costs, ReadStageCosts(config));
    auto& stages = list.source_.emplace<std::vector<StageCosts>>();
    for (const LayerGroup& entry : costs.entries) stages.push_back(entry.costs);
    list.in_bytes_ = costs.in_bytes;
  } else if (source == "layer_costs") {
    PENSTOCK_TRY(CostList costs, ReadLayerCosts(config));
    list.source_ = std::move(costs.entries);
    list.in_bytes_ = costs.in_bytes;
  } else {
    PENSTOCK_TRY(list.source_, ReadUniform(config));
  }
  PENSTOCK_TRY(const auto time_unit, config.Text("time_unit"));
  list.time_unit_ = time_unit.value_or(list.model() ? "s" : "");
  if (!list.time_unit_.empty() && list.time_unit_ != "s") {
    return config.Refuse("time_unit", "{}: give s, or leave it out", Quote(list.time_unit_));
  }
  const bool in_seconds = list.time_unit_ == "s";
  PENSTOCK_TRY(list.comm_, ReadComm(config, in_seconds));
  if (const Status status = CheckTime(list.comm_.value_or(0)); !status) {
    return config.Refuse("comm", "{}", status.error().line());
  }
  PENSTOCK_TRY(list.overlap_, config.Text("overlap"));
  if (const auto rule = ParseOverlap(list.overlap_.value_or("max")); !rule) {
    return config.Refuse("overlap", "{}", rule.error().line());
  }
  PENSTOCK_TRY(list.transfers_, config.Text("transfers"));
  if (const auto how = ParseTransfers(list.transfers_.value_or("asynchronous")); !how) {
    return config.Refuse("transfers", "{}", how.error().line());
  }
  PENSTOCK_TRY(const auto message, config.Text("message_bytes"));
  if (message) {
    PENSTOCK_TRY(list.message_bytes_, ReadSize(config, "message_bytes", *message));
  }
  PENSTOCK_TRY(const auto prices, config.Texts("price"));
  list.prices_ = prices.value_or(std::vector<std::string>());
  for (std::string& price : list.prices_) {
    price = InUnitOfCosts(price, in_seconds);
    if (const auto parsed = ParsePrice(price); !parsed) return tl::unexpected(parsed.error());
  }
  if (!config.Has("topology")) return list;
  PENSTOCK_TRY(list.topology_, ReadTopology(config));
  if (list.comm_) {
    return config.Refuse("comm",
                         "the levels of topology have latencies of their own; leave it out");
  }
  for (const LinkLevel& level : list.topology_.levels) {
    if (level.bandwidth == 0 || list.message_bytes_ || list.model()) continue;
    return config.Refuse("topology", "level {} has a bandwidth; give message_bytes",
                         Quote(level.name));
  }
  return list;
}

Result<Costs> PriceList::CostsOfStages(const Placement& placement, int slices,
                                       int vocabulary_ranks) const {
  const int chain = placement.chain_length(), replicas = placement.replicas();
  if (const auto* uniform = std::get_if<UniformCost>(&source_)) {
    return Costs::Uniform(placement, slices, uniform->forward, uniform->backward_input,
                          uniform->backward_weight, 0, uniform->kept_for_weight);
  }
  Costs costs;
  if (const auto* stages = std::get_if<std::vector<StageCosts>>(&source_)) {
    costs.stages = *stages;
    if (stages->size() == Index(placement.stages())) return costs;
    return InvalidArgument(
        "costs of {} stages for a schedule of {}; give one entry per stage, or costs per layer, "
        "which fit any number",
        stages->size(), placement.stages());
  }
  if (const auto* layers = std::get_if<std::vector<LayerGroup>>(&source_)) {
    PENSTOCK_TRY(costs.stages, StagesOfLayers(*layers, chain, replicas, slices));
    return costs;
  }
  PENSTOCK_TRY(const ModelOnCluster loaded, model()->Load());
  PENSTOCK_TRY_STATUS(CheckRanks(loaded, placement.ranks()));
  return CostsOfChains(loaded, {chain, slices, vocabulary_ranks}, replicas);
}

Status PriceList::SetMessages(int slices, Costs& costs) const {
  if (message_bytes_) costs.message_bytes = *message_bytes_ / slices;
  PENSTOCK_TRY_STATUS(CheckScales(costs.stages, costs.message_bytes));
  if (comm_) {
    costs.comm = *comm_;
    costs.topology = {};
  }
  if (!topology_.empty()) costs.topology = topology_;
  PENSTOCK_TRY(costs.overlap, ParseOverlap(overlap_.value_or("max")));
  PENSTOCK_TRY(costs.transfers, ParseTransfers(transfers_.value_or("asynchronous")));
  return {};
}

Result<Costs> PriceList::CostsOf(const Schedule& schedule) const {
  const int vocabulary_ranks = schedule.vocabulary ? schedule.ranks() : 0;
  PENSTOCK_TRY(Costs costs, CostsOfStages(schedule.placement, schedule.slices, vocabulary_ranks));
  PENSTOCK_TRY_STATUS(SetMessages(schedule.slices, costs));
  PENSTOCK_TRY_STATUS(SetActionPrices(prices_, schedule, costs));
  return costs;
}

Status PriceList::Plan(const Algorithm& algorithm, ScheduleParams& params) const {
  PENSTOCK_TRY(params.overlap, ParseOverlap(overlap_.value_or("max")));
  params.comm = comm_.value_or(0);
  const double bytes = message_bytes_.value_or(0) / std::max(1, params.slices);
  if (!topology_.empty()) params.comm = topology_.LongestTime(std::max(1, params.ranks), bytes);
  if (const auto* uniform = std::get_if<UniformCost>(&source_)) {
    params.forward = uniform->forward;
    params.backward_input = uniform->backward_input;
    params.backward_weight = uniform->backward_weight;
    params.kept_for_weight = uniform->kept_for_weight;
    return {};
  }
  PENSTOCK_TRY(const ScheduleParams checked, CheckParams(algorithm, params));
  const int replicas = algorithm.knobs.replicas;
  std::vector<int> ranks(Index(checked.ranks) * Index(checked.chunks * replicas));
  for (std::size_t stage = 0; stage < ranks.size(); ++stage) {
    ranks[stage] = static_cast<int>(stage) % checked.ranks;
  }
  PENSTOCK_TRY(const Placement placement,
               Placement::FromRanks(std::move(ranks), checked.ranks, replicas));
  PENSTOCK_TRY(Costs costs, CostsOfStages(placement, checked.slices, 0));
  const double latency = costs.comm;
  PENSTOCK_TRY_STATUS(SetMessages(checked.slices, costs));
  costs.comm = comm_ || !topology_.empty() ? params.comm : latency;
  costs.by_slice.clear();  // searches plan with means
  params.costs = std::move(costs);
  return {};
}

}  // namespace penstock::python
