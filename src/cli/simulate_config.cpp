#include "cli/simulate_config.h"

#include "base/units.h"
#include "cli/option_effects.h"

namespace penstock {
namespace {

const std::vector<std::string_view> kKeys = {"schedule",     "csv",          "ranks",
                                             "chunks",       "microbatches", "group",
                                             "cuts",         "waves",        "steps",
                                             "replicas",     "weights",      "iteration",
                                             "split",        "cost",         "comm",
                                             "overlap",      "memory_limit", "stage_costs",
                                             "pass",         "price",        "activation_bytes",
                                             "message_bytes"};

// Fills options from a configuration, and notes which came from there.
class Filler {
 public:
  Filler(const std::string& path, const YamlMap& config, ScheduleOptions& options)
      : path_(path), config_(config), options_(options) {}

  // Sets `field` to the value that a getter read, unless the command line has given it.
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

// Activations: a number, or a size with its unit ("1.5GiB"), which sets `in_bytes`.
Status ReadMemory(const YamlMap& map, const char* key, double& field, bool& in_bytes) {
  PENSTOCK_TRY(const std::optional<std::string> text, map.Text(key));
  const Result<std::int64_t> bytes = ParseBytes(text.value_or(""));
  if (bytes) {
    field = static_cast<double>(*bytes);
    in_bytes = true;
    const Status status = CheckMemory(field);
    if (!status) return map.Refuse(key, "{}", status.error().message);
    return {};
  }
  PENSTOCK_TRY(const std::optional<double> value, map.Number(key));
  field = value.value_or(field);
  const Status status = CheckMemory(field);
  if (!status) return map.Refuse(key, "{}", status.error().message);
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
    const Status status = CheckTime(field);
    if (!status) return map.Refuse(key, "{}", status.error().message);
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
    return map.Refuse("activation_after_i", "give it and activation both with a unit, or neither");
  }
  if (stage.activation_after_i > stage.activation) {
    return map.Refuse("activation_after_i", "at most the activation");
  }
  return entry;
}

Status FillStageCosts(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  const YAML::Node list = config.Node("stage_costs");
  if (!list.IsSequence() || list.size() == 0) {
    return config.Refuse("stage_costs", "a list of stages is needed");
  }
  std::vector<StageCosts> stages;
  bool in_bytes = false;
  for (const YAML::Node& node : list) {
    auto stage = ReadStage(node);
    if (!stage) {
      return InvalidArgument("stage_costs, stage {}: {}", stages.size(), stage.error().message);
    }
    if (!stages.empty() && stage->in_bytes != in_bytes) {
      return config.Refuse("stage_costs", "give every activation with a unit, or none");
    }
    in_bytes = stage->in_bytes;
    stages.push_back(stage->costs);
  }
  if (options.cost) return {};  // of the command line, which wins
  options.stage_costs = std::move(stages);
  options.stage_costs_in_bytes = in_bytes;
  filler.Note("stage_costs");
  return {};
}

// "F,I,W", F, or [F, I, W].
Result<std::optional<std::string>> ReadCost(const YamlMap& config) {
  PENSTOCK_TRY(const auto words, config.Texts("cost"));
  if (!words) return std::optional<std::string>();
  return std::optional(fmt::format("{}", fmt::join(*words, ",")));
}

// The schedules: the command line's, or those of the file.
Status FillCandidates(const YamlMap& config, Filler& filler, ScheduleOptions& options) {
  PENSTOCK_TRY(const auto names, config.Texts("schedule"));
  PENSTOCK_TRY(const auto files, config.Texts("csv"));
  if (!options.candidates.empty()) return {};
  if (names) {
    const auto read = ReadCandidates(*names);
    if (!read) return config.Refuse("schedule", "{}", read.error().message);
    if (!read->config.empty()) {
      return config.Refuse("schedule", "{} is a configuration, not a schedule", read->config);
    }
    options.candidates = read->candidates;
    filler.Note("schedule");
  }
  for (const std::string& file : files.value_or(std::vector<std::string>())) {
    options.candidates.push_back({Candidate::Kind::kFile, file});
    filler.Note("csv");
  }
  return {};
}

Status Fill(const std::string& path, const YamlMap& config, ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(config.RequireKnown(kKeys));
  Filler filler(path, config, options);
  PENSTOCK_TRY_STATUS(FillCandidates(config, filler, options));
  if (config.Has("stage_costs")) {
    if (config.Has("cost")) {
      return config.Refuse("cost", "stage_costs says what stages cost; keep one of the two");
    }
    PENSTOCK_TRY_STATUS(FillStageCosts(config, filler, options));
  }
  PENSTOCK_TRY_STATUS(filler.Fill("cost", ReadCost(config), options.cost));
  const std::pair<const char*, std::optional<int>*> counts[] = {
      {"ranks", &options.ranks},
      {"chunks", &options.chunks},
      {"microbatches", &options.microbatches},
      {"group", &options.group},
      {"cuts", &options.cuts},
      {"waves", &options.waves},
      {"steps", &options.steps},
      {"replicas", &options.replicas},
      {"iteration", &options.iteration}};
  for (const auto& [key, field] : counts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Int(key), *field));
  }
  const std::pair<const char*, std::optional<std::string>*> texts[] = {
      {"weights", &options.weights},
      {"overlap", &options.overlap},
      {"memory_limit", &options.memory_limit},
      {"activation_bytes", &options.activation_bytes},
      {"message_bytes", &options.message_bytes}};
  for (const auto& [key, field] : texts) {
    PENSTOCK_TRY_STATUS(filler.Fill(key, config.Text(key), *field));
  }
  PENSTOCK_TRY_STATUS(filler.Fill("pass", config.Texts("pass"), options.passes.passes));
  PENSTOCK_TRY_STATUS(filler.Fill("price", config.Texts("price"), options.passes.prices));
  PENSTOCK_TRY_STATUS(filler.Fill("comm", config.Number("comm"), options.comm));
  PENSTOCK_TRY(const std::optional<bool> split, config.Bool("split"));
  if (split.value_or(false) && !options.split) {
    options.split = true;
    filler.Note("split");
  }
  return {};
}

Result<std::optional<PrimusConfig>> Load(const std::string& path, const YAML::Node& root,
                                         ScheduleOptions& options) {
  PENSTOCK_TRY(const YamlMap config, YamlMap::Of(root, "the configuration",
                                                 root.IsMap() && root["schedulers"].IsDefined()
                                                     ? YamlMap::Null::kMissing
                                                     : YamlMap::Null::kRefused));
  if (!IsPrimusConfig(config)) {
    PENSTOCK_TRY_STATUS(Fill(path, config, options));
    return std::optional<PrimusConfig>();
  }
  PENSTOCK_TRY_STATUS(RefuseOthers(options, {"--pass", "--price"},
                                   "in a configuration of Primus's simulator the schedulers say "
                                   "all"));
  PENSTOCK_TRY(PrimusConfig primus, ReadPrimusConfig(config));
  return std::optional(std::move(primus));
}

// The configuration among the words, which fills what `options` leaves open.
Result<std::optional<PrimusConfig>> LoadConfig(ScheduleOptions& options) {
  const std::string& path = options.config;
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto loaded = Load(path, root, options);
  if (!loaded) return MakeError(loaded.error().code, "{}: {}", path, loaded.error().message);
  return loaded;
}

}  // namespace

Result<std::optional<PrimusConfig>> ReadSources(ScheduleOptions& options) {
  PENSTOCK_TRY_STATUS(options.ReadSources());
  std::optional<PrimusConfig> primus;
  if (!options.config.empty()) {
    PENSTOCK_TRY(primus, LoadConfig(options));
  }
  if (primus) return primus;
  const Status status = RefuseUnread(options);
  if (!status) return tl::unexpected(NameAsGiven(status.error(), options.given_in, "schedule"));
  return primus;
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
  PENSTOCK_TRY_STATUS(RefuseUnreadPrices(options, primus->schedules));
  return Choice{std::move(primus->schedules), std::move(primus->output_dir)};
}

}  // namespace penstock
