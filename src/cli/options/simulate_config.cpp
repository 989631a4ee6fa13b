#include "cli/options/simulate_config.h"

#include <algorithm>
#include <functional>

#include "base/text/quote.h"
#include "cli/options/option_effects.h"
#include "interop/primus/config.h"
#include "schedule/cost_files/cost_list.h"
#include "schedule/cost_files/topology_config.h"

namespace penstock {
namespace {

const std::vector<std::string_view> kKeys = {"schedule",      "csv",
                                             "ranks",         "chunks",
                                             "microbatches",  "group",
                                             "slices",        "waves",
                                             "steps",         "replicas",
                                             "weights",       "iteration",
                                             "split",         "cost",
                                             "comm",          "overlap",
                                             "memory_limit",  "stage_costs",
                                             "layer_costs",   "pass",
                                             "price",         "activation_bytes",
                                             "message_bytes", "objective",
                                             "sweep",         "transfers",
                                             "topology",      "launch",
                                             "slow_rank",     "microbatch_lengths",
                                             "jitter",        "seed",
                                             "runs",          "offload_sharing",
                                             "collectives",   "trace_rule",
                                             "time_unit"};

// Keys of PricedModel.
constexpr std::pair<const char*, std::optional<std::string> PricedModel::*> kModelTexts[] = {
    {"model", &PricedModel::model},
    {"device", &PricedModel::device},
    {"nodes", &PricedModel::nodes},
    {"precision", &PricedModel::precision}};
constexpr std::pair<const char*, std::optional<int> PricedModel::*> kModelCounts[] = {
    {"micro_batch_size", &PricedModel::micro_batch_size},
    {"sequence", &PricedModel::sequence},
    {"tensor", &PricedModel::tensor},
    {"data", &PricedModel::data},
    {"expert", &PricedModel::expert},
    {"zero", &PricedModel::zero}};
constexpr std::pair<const char*, std::optional<double> PricedModel::*> kModelNumbers[] = {
    {"flops_efficiency", &PricedModel::flops_efficiency},
    {"bandwidth_efficiency", &PricedModel::bandwidth_efficiency},
    {"hidden_communication", &PricedModel::hidden_communication}};

std::vector<std::string_view> KnownKeys() {
  std::vector<std::string_view> keys = kKeys;
  for (const auto& [key, field] : kModelTexts) keys.emplace_back(key);
  for (const auto& [key, field] : kModelCounts) keys.emplace_back(key);
  for (const auto& [key, field] : kModelNumbers) keys.emplace_back(key);
  return keys;
}

// Sets options from a configuration and records which of them it set.
class Filler {
 public:
  Filler(const std::string& path, const YamlMap& config, ScheduleOptions& options)
      : path_(path), config_(config), options_(options) {}

  // Sets `field` to the value that a getter read, unless the command line sets it.
  template <class T>
  Status Fill(const char* key, Result<std::optional<T>> read, std::optional<T>& field) {
    PENSTOCK_TRY(std::optional<T> value, std::move(read));
    if (!value || field) return {};
    field = std::move(value);
    Note(key);
    return {};
  }
  Status Fill(const char* key, Result<std::optional<std::vector<std::string>>> read,
              std::vector<std::string>& field) {
    PENSTOCK_TRY(auto value, std::move(read));
    if (!value || !field.empty()) return {};
    field = std::move(*value);
    Note(key);
    return {};
  }
  void Note(const std::string& key) {
    options_.given_in[key] = fmt::format("{}: line {}", path_, config_.LineOf(key));
  }

 private:
  const std::string& path_;
  const YamlMap& config_;
  ScheduleOptions& options_;
};

Status FillStageCosts(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  PENSTOCK_TRY(CostList list, ReadStageCosts(config));
  // The command line takes precedence.
  if (options.cost || options.priced_model.given()) return {};
  std::vector<StageCosts>& stages = options.stage_costs.emplace();
  for (const LayerGroup& entry : list.entries) stages.push_back(entry.costs);
  options.costs_in_bytes = list.in_bytes;
  filler.Note("stage_costs");
  return {};
}

Status FillLayerCosts(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  PENSTOCK_TRY(CostList list, ReadLayerCosts(config));
  // The command line takes precedence.
  if (options.cost || options.priced_model.given()) return {};
  options.layer_costs = std::move(list.entries);
  options.costs_in_bytes = list.in_bytes;
  filler.Note("layer_costs");
  return {};
}

// "F,I,W", F, or [F, I, W].
Result<std::optional<std::string>> ReadJoined(const YamlMap& config, const std::string& key) {
  PENSTOCK_TRY(const auto words, config.Texts(key));
  if (!words) return std::optional<std::string>();
  return std::optional(fmt::format("{}", fmt::join(*words, ",")));
}

Result<std::optional<TimeOption>> ReadTime(const YamlMap& config, const std::string& key) {
  PENSTOCK_TRY(const auto text, config.Text(key));
  if (!text) return std::optional<TimeOption>();
  const auto time = ParseTimeOption(*text);
  if (!time) return config.Refuse(key, "{}", time.error().line());
  return std::optional(*time);
}

// A name or file; or a map of `schedule` or `csv` with its own options.
Result<Candidate> ReadCandidate(const YamlMap& config, const YAML::Node& node) {
  if (node.IsScalar()) {
    const auto read = ReadCandidates({node.Scalar()});
    if (!read) return config.Refuse("schedule", "{}", read.error().line());
    if (read->candidates.size() == 1) return read->candidates.front();
    return config.Refuse("schedule", "{} is {}, not a schedule", Quote(node.Scalar()),
                         read->config.empty() ? "several; write a list" : "a configuration");
  }
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "an entry of schedule"));
  PENSTOCK_TRY(const auto name, map.Text("schedule"));
  PENSTOCK_TRY(const auto file, map.Text("csv"));
  if (name.has_value() == file.has_value()) {
    return InvalidArgument("line {}: an entry of schedule needs one of schedule and csv",
                           map.Line());
  }
  Candidate candidate{file ? Candidate::Kind::kFile : Candidate::Kind::kAlgorithm,
                      file ? *file : *name};
  if (name) {
    const auto found = FindAlgorithm(*name);
    if (!found) return map.Refuse("schedule", "{}", found.error().line());
  }
  PENSTOCK_TRY(candidate.options, ReadCandidateOptions(map));
  candidate.written = candidate.name;
  for (const auto& [key, value] : candidate.options) {
    candidate.written += fmt::format(":{}={}", key, value);
  }
  return candidate;
}

// The schedules: those of the command line, otherwise those of the file.
Status FillCandidates(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  std::vector<Candidate> candidates;
  const YAML::Node node = config.Node("schedule");
  if (node.IsSequence()) {
    for (const YAML::Node& entry : node) {
      PENSTOCK_TRY(Candidate candidate, ReadCandidate(config, entry));
      candidates.push_back(std::move(candidate));
    }
    if (candidates.empty()) return config.Refuse("schedule", "the list is empty");
  } else if (!node.IsNull()) {
    PENSTOCK_TRY(Candidate candidate, ReadCandidate(config, node));
    candidates.push_back(std::move(candidate));
  }
  PENSTOCK_TRY(const auto files, config.Texts("csv"));
  for (const std::string& file : files.value_or(std::vector<std::string>())) {
    candidates.push_back({Candidate::Kind::kFile, file});
  }
  if (!options.candidates.empty() || candidates.empty()) return {};
  options.candidates = std::move(candidates);
  filler.Note(node.IsNull() ? "csv" : "schedule");
  return {};
}

// Reads the sweep. Keys that have a single value on the command line keep that value.
Status FillSweep(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  if (!config.Has("sweep")) return {};
  if (!options.can_sweep) return config.Refuse("sweep", "only 'penstock simulate' runs sweeps");
  if (!options.sweep.empty()) return {};
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(config.Node("sweep"), "sweep"));
  PENSTOCK_TRY(options.sweep, ReadSweep(map));
  if (options.sweep.empty()) return config.Refuse("sweep", "it has no keys");
  const std::vector<std::string> given = GivenOptions(options);
  std::erase_if(options.sweep, [&](const SweepAxis& axis) {
    return std::find(given.begin(), given.end(), OptionOf(axis.key)) != given.end();
  });
  filler.Note("sweep");
  return {};
}

Status FillModel(const YamlMap& config, Filler& filler, PricedModel& model) {
  for (const auto& [key, field] : kModelTexts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Text(key), model.*field));
  }
  for (const auto& [key, field] : kModelCounts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Int(key), model.*field));
  }
  for (const auto& [key, field] : kModelNumbers) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Number(key), model.*field));
  }
  return {};
}

Status Fill(const std::string& path, const YamlMap& config, ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(config.RequireKnown(KnownKeys()));
  Filler filler(path, config, options);
  PENSTOCK_TRY_STATUS(FillSweep(config, filler, options));
  PENSTOCK_TRY_STATUS(FillCandidates(config, filler, options));
  const std::string costs_key = config.Has("model")         ? "model"
                                : config.Has("stage_costs") ? "stage_costs"
                                                            : "layer_costs";
  for (const char* other : {"cost", "layer_costs", "stage_costs"}) {
    if (!config.Has(costs_key) || costs_key == other || !config.Has(other)) continue;
    return config.Refuse(other, "{} says what stages cost; keep one of the two", costs_key);
  }
  if (config.Has("stage_costs")) {
    PENSTOCK_TRY_STATUS(FillStageCosts(config, filler, options));
  } else if (config.Has("layer_costs")) {
    PENSTOCK_TRY_STATUS(FillLayerCosts(config, filler, options));
  }
  if (!options.cost) PENSTOCK_TRY_STATUS(FillModel(config, filler, options.priced_model));
  PENSTOCK_TRY_STATUS(filler.Fill("cost", ReadJoined(config, "cost"), options.cost));
  PENSTOCK_TRY_STATUS(filler.Fill("microbatch_lengths", ReadJoined(config, "microbatch_lengths"),
                                  options.microbatch_lengths));
  const std::pair<const char*, std::optional<int>*> counts[] = {
      {"ranks", &options.ranks},
      {"chunks", &options.chunks},
      {"microbatches", &options.microbatches},
      {"group", &options.group},
      {"slices", &options.slices},
      {"waves", &options.waves},
      {"steps", &options.steps},
      {"replicas", &options.replicas},
      {"seed", &options.seed},
      {"runs", &options.runs},
      {"iteration", &options.iteration},
      {"offload_sharing", &options.offload_sharing}};
  for (const auto& [key, field] : counts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Int(key), *field));
  }
  const std::pair<const char*, std::optional<std::string>*> texts[] = {
      {"weights", &options.weights},
      {"trace_rule", &options.trace_rule},
      {"objective", &options.objective},
      {"overlap", &options.overlap},
      {"transfers", &options.transfers},
      {"jitter", &options.jitter},
      {"memory_limit", &options.memory_limit},
      {"activation_bytes", &options.activation_bytes},
      {"message_bytes", &options.message_bytes}};
  for (const auto& [key, field] : texts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Text(key), *field));
  }
  PENSTOCK_TRY_STATUS(filler.Fill("pass", config.Texts("pass"), options.passes.passes));
  PENSTOCK_TRY_STATUS(filler.Fill("price", config.Texts("price"), options.passes.prices));
  PENSTOCK_TRY_STATUS(filler.Fill("comm", ReadTime(config, "comm"), options.comm));
  PENSTOCK_TRY_STATUS(filler.Fill("launch", ReadTime(config, "launch"), options.launch));
  PENSTOCK_TRY_STATUS(filler.Fill("slow_rank", config.Texts("slow_rank"), options.slow_ranks));
  PENSTOCK_TRY_STATUS(filler.Fill("time_unit", config.Text("time_unit"), options.time_unit));
  if (options.time_unit.value_or("s") != "s") {
    return config.Refuse("time_unit", "{}: give s, or leave it out", Quote(*options.time_unit));
  }
  if (config.Has("topology")) {
    PENSTOCK_TRY(options.topology, ReadTopology(config));
    filler.Note("topology");
  }
  if (config.Has("collectives")) {
    PENSTOCK_TRY(options.collectives, ReadCollectives(config));
    filler.Note("collectives");
  }
  PENSTOCK_TRY(const std::optional<bool> split, config.Bool("split"));
  if (split.value_or(false) && !options.split) {
    options.split = true;
    filler.Note("split");
  }
  return {};
}

Choice ChoiceOf(PrimusConfig primus) {
  Choice choice;
  choice.output_dir = std::move(primus.output_dir);
  for (PrimusSchedule& read : primus.schedules) {
    ChosenSchedule& chosen = choice.schedules.emplace_back();
    chosen.label = std::move(read.name);
    chosen.algorithm = read.algorithm;
    chosen.params = std::move(read.params);
    chosen.schedule = std::move(read.schedule);
    chosen.costs = std::move(read.costs);
  }
  return choice;
}

Result<std::optional<Choice>> Load(const std::string& path, const YAML::Node& root,
                                   ScheduleOptions& options) {
  PENSTOCK_TRY(const YamlMap config, YamlMap::Of(root, "the configuration",
                                                 root.IsMap() && root["schedulers"].IsDefined()
                                                     ? YamlMap::Null::kMissing
                                                     : YamlMap::Null::kRefused));
  if (!IsPrimusConfig(config)) {
    PENSTOCK_TRY_STATUS(Fill(path, config, options));
    return std::optional<Choice>();
  }
  PENSTOCK_TRY_STATUS(RefuseOthers(options, {"--pass", "--price"},
                                   "in a configuration of Primus's simulator the schedulers say "
                                   "all"));
  PENSTOCK_TRY(PrimusConfig primus, ReadPrimusConfig(config));
  return std::optional(ChoiceOf(std::move(primus)));
}

// Loads the configuration among the arguments. It sets what the command line leaves open.
Result<std::optional<Choice>> LoadConfig(ScheduleOptions& options) {
  const std::string& path = options.config;
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto loaded = Load(path, root, options);
  if (!loaded) return MakeError(loaded.error().code, "{}: {}", path, loaded.error().line());
  return loaded;
}

}  // namespace

Result<std::optional<Choice>> ReadSources(ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(options.ReadSources());
  std::optional<Choice> primus;
  if (!options.config.empty()) {
    PENSTOCK_TRY(primus, LoadConfig(options));
  }
  if (primus) return primus;
  options.compares = options.candidates.size() > 1 || !options.sweep.empty();
  const Status status = RefuseUnread(options);
  if (!status) return tl::unexpected(NameAsGiven(status.error(), options.given_in, "schedule"));
  return primus;
}

Result<Choice> ChooseSchedules(ScheduleOptions& options) {
  PENSTOCK_TRY(std::optional<Choice> primus, ReadSources(options));
  return BuildChoice(options, std::move(primus));
}

Result<Choice> BuildChoice(const ScheduleOptions& options, std::optional<Choice> primus) {
  Choice choice;
  if (!primus) {
    PENSTOCK_TRY(choice.schedules, options.Build());
    return choice;
  }
  for (ChosenSchedule& chosen : primus->schedules) {
    PENSTOCK_TRY_STATUS(options.passes.Apply(chosen.schedule, chosen.costs));
    if (!options.passes.passes.empty()) chosen.algorithm = nullptr;
  }
  PENSTOCK_TRY_STATUS(RefuseUnreadPrices(options, primus->schedules));
  return *std::move(primus);
}

}  // namespace penstock
