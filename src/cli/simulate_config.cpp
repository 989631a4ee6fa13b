#include "cli/simulate_config.h"

#include "base/files.h"
#include "base/units.h"

namespace penstock {
namespace {

const std::vector<std::string_view> kKeys = {
    "schedule",     "csv",         "ranks", "chunks", "microbatches",
    "group",        "cuts",        "waves", "steps",  "replicas",
    "weights",      "split",       "cost",  "comm",   "overlap",
    "memory_limit", "stage_costs", "pass",  "price",  "activation_bytes",
    "message_bytes"};

Status FillInt(const YamlMap& config, const char* key, std::optional<int>& field) {
  PENSTOCK_TRY(const std::optional<int> value, config.Int(key));
  if (!field) field = value;
  return {};
}

Status FillText(const YamlMap& config, const char* key, std::optional<std::string>& field) {
  PENSTOCK_TRY(const std::optional<std::string> value, config.Text(key));
  if (!field) field = value;
  return {};
}

// Activations: a number, or a size with its unit ("1.5GiB"), which sets `in_bytes`.
Status ReadMemory(const YamlMap& map, const char* key, double& field, bool& in_bytes) {
  PENSTOCK_TRY(const std::optional<std::string> text, map.Text(key));
  const Result<std::int64_t> bytes = ParseBytes(text.value_or(""));
  if (bytes) {
    field = static_cast<double>(*bytes);
    in_bytes = true;
    return {};
  }
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  field = value.value_or(field);
  if (field < 0) return InvalidArgument("{}: at least 0, not {}", key, field);
  return {};
}

struct ReadStageCosts {
  StageCosts costs;
  bool in_bytes = false;  // its activations
};

Result<ReadStageCosts> ReadStage(const YAML::Node& node) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "an entry of stage_costs"));
  PENSTOCK_TRY_STATUS(map.RequireKnown(
      {"forward", "backward_input", "backward_weight", "activation", "activation_after_i"}));
  ReadStageCosts entry;
  StageCosts& stage = entry.costs;
  const auto read = [&](const char* key, double& field, double otherwise) -> Status {
    PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
    field = value.value_or(otherwise);
    if (field < 0) return InvalidArgument("{}: at least 0, not {}", key, field);
    return {};
  };
  PENSTOCK_TRY_STATUS(read("forward", stage.forward, 1));
  PENSTOCK_TRY_STATUS(read("backward_input", stage.backward_input, 1));
  PENSTOCK_TRY_STATUS(read("backward_weight", stage.backward_weight, 1));
  PENSTOCK_TRY_STATUS(ReadMemory(map, "activation", stage.activation, entry.in_bytes));
  stage.activation_after_i = stage.activation;
  bool after_in_bytes = entry.in_bytes && !map.Has("activation_after_i");
  PENSTOCK_TRY_STATUS(
      ReadMemory(map, "activation_after_i", stage.activation_after_i, after_in_bytes));
  if (entry.in_bytes != after_in_bytes && stage.activation_after_i != 0) {
    return InvalidArgument("activation and activation_after_i: give both with a unit, or neither");
  }
  if (stage.activation_after_i > stage.activation) {
    return InvalidArgument("activation_after_i: at most the activation");
  }
  return entry;
}

Status FillStageCosts(const YamlMap& config, ScheduleOptions& options) {
  if (!config.Has("stage_costs") || options.cost || options.stage_costs) return {};
  const YAML::Node list = config.Node("stage_costs");
  if (!list.IsSequence()) return InvalidArgument("stage_costs: a list of stages is needed");
  std::vector<StageCosts> stages;
  for (const YAML::Node& node : list) {
    auto stage = ReadStage(node);
    if (!stage) {
      return InvalidArgument("stage_costs, stage {}: {}", stages.size(), stage.error().message);
    }
    if (!stages.empty() && stage->in_bytes != options.stage_costs_in_bytes) {
      return InvalidArgument("stage_costs: give every activation with a unit, or none");
    }
    options.stage_costs_in_bytes = stage->in_bytes;
    stages.push_back(stage->costs);
  }
  options.stage_costs = std::move(stages);
  return {};
}

// "F,I,W", F, or [F, I, W].
Status FillCost(const YamlMap& config, ScheduleOptions& options) {
  const YAML::Node node = config.Node("cost");
  if (!node.IsSequence()) return FillText(config, "cost", options.cost);
  PENSTOCK_TRY(const auto words, config.Texts("cost"));
  if (!options.cost && words) options.cost = fmt::format("{}", fmt::join(*words, ","));
  return {};
}

Status FillCandidates(const YamlMap& config, ScheduleOptions& options) {
  PENSTOCK_TRY(const auto names, config.Texts("schedule"));
  PENSTOCK_TRY(const auto files, config.Texts("csv"));
  if (!options.candidates.empty()) return {};
  if (names) {
    PENSTOCK_TRY(ReadWords read, ReadCandidates(*names));
    if (!read.config.empty()) {
      return InvalidArgument("schedule: {} is a configuration, not a schedule", read.config);
    }
    options.candidates = std::move(read.candidates);
  }
  for (const std::string& file : files.value_or(std::vector<std::string>())) {
    options.candidates.push_back({Candidate::Kind::kFile, file});
  }
  return {};
}

Status Fill(const YamlMap& config, ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(config.RequireKnown(kKeys));
  PENSTOCK_TRY_STATUS(FillStageCosts(config, options));  // before `cost`, which it wins over
  if (!options.stage_costs) PENSTOCK_TRY_STATUS(FillCost(config, options));
  PENSTOCK_TRY_STATUS(FillCandidates(config, options));
  const std::pair<const char*, std::optional<int>*> counts[] = {
      {"ranks", &options.ranks},
      {"chunks", &options.chunks},
      {"microbatches", &options.microbatches},
      {"group", &options.group},
      {"cuts", &options.cuts},
      {"waves", &options.waves},
      {"steps", &options.steps},
      {"replicas", &options.replicas}};
  for (const auto& [key, field] : counts) PENSTOCK_TRY_STATUS(FillInt(config, key, *field));
  PENSTOCK_TRY_STATUS(FillText(config, "weights", options.weights));
  PENSTOCK_TRY_STATUS(FillText(config, "overlap", options.overlap));
  PENSTOCK_TRY_STATUS(FillText(config, "memory_limit", options.memory_limit));
  PENSTOCK_TRY_STATUS(FillText(config, "activation_bytes", options.activation_bytes));
  PENSTOCK_TRY_STATUS(FillText(config, "message_bytes", options.message_bytes));
  PENSTOCK_TRY(const auto passes, config.Texts("pass"));
  PENSTOCK_TRY(const auto prices, config.Texts("price"));
  if (passes && options.passes.passes.empty()) options.passes.passes = *passes;
  if (prices && options.passes.prices.empty()) options.passes.prices = *prices;
  PENSTOCK_TRY(const std::optional<bool> split, config.Bool("split"));
  options.split = options.split || split.value_or(false);
  PENSTOCK_TRY(const std::optional<double> comm, config.Number("comm"));
  if (!options.comm) options.comm = comm;
  return {};
}

Status RequireOpen(const ScheduleOptions& options) {
  const bool open = options.candidates.empty() && !options.ranks && !options.chunks &&
                    !options.microbatches && !options.group && !options.cuts && !options.waves &&
                    !options.steps && !options.replicas && !options.weights && !options.split &&
                    !options.cost && !options.comm && !options.overlap && !options.memory_limit &&
                    !options.activation_bytes && !options.message_bytes;
  if (open) return {};
  return InvalidArgument(
      "it is a configuration of Primus's simulator, whose schedulers say all; give no options that "
      "choose, shape or price a schedule");
}

Result<std::optional<PrimusConfig>> Load(const std::string& path, ScheduleOptions& options) {
  PENSTOCK_TRY(const std::string text, ReadFile(path));
  PENSTOCK_TRY(const YAML::Node root, ParseYaml(text));
  PENSTOCK_TRY(const YamlMap config, YamlMap::Of(root, "the configuration"));
  if (!IsPrimusConfig(config)) {
    PENSTOCK_TRY_STATUS(Fill(config, options));
    return std::optional<PrimusConfig>();
  }
  PENSTOCK_TRY_STATUS(RequireOpen(options));
  PENSTOCK_TRY(PrimusConfig primus, ReadPrimusConfig(config));
  return std::optional(std::move(primus));
}

}  // namespace

Result<std::optional<PrimusConfig>> ReadSources(ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(options.ReadSources());
  if (options.config.empty()) return std::optional<PrimusConfig>();
  auto loaded = Load(options.config, options);
  if (!loaded && loaded.error().code != ErrorCode::kNotFound) {
    return MakeError(loaded.error().code, "{}: {}", options.config, loaded.error().message);
  }
  return loaded;
}

Result<Choice> ChooseSchedules(ScheduleOptions& options) {
  Choice choice;
  PENSTOCK_TRY(std::optional<PrimusConfig> primus, ReadSources(options));
  if (!primus) {
    PENSTOCK_TRY(choice.schedules, options.Build());
    return choice;
  }
  for (ChosenSchedule& chosen : primus->schedules) {
    PENSTOCK_TRY_STATUS(options.passes.Apply(chosen.schedule, chosen.costs));
    if (!options.passes.passes.empty()) chosen.algorithm = nullptr;
  }
  return Choice{std::move(primus->schedules), std::move(primus->output_dir)};
}

}  // namespace penstock
