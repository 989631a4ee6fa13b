#include "scenario/price/read_file.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/quote.h"
#include "config/profiled_run.h"
#include "config/run_to_price.h"
#include "interop/primus/config.h"
#include "scenario/candidates.h"
#include "scenario/fields.h"
#include "scenario/machine/machine_file.h"
#include "scenario/own_fields.h"
#include "scenario/price/unused_fields.h"
#include "scenario/sweep_axes.h"

namespace penstock {
namespace {

// The fields that say what stages cost. A source of higher precedence that has one of them hides
// the others.
constexpr std::array<std::string_view, 4> kCostSources = {"model", "stage_costs", "layer_costs",
                                                          "cost"};

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
    return map.Refuse("schedule", "an entry needs one of schedule and csv");
  }
  Candidate candidate{file ? Candidate::Kind::kFile : Candidate::Kind::kAlgorithm,
                      file ? *file : *name};
  if (name) {
    const auto found = FindAlgorithm(*name);
    if (!found) return map.Refuse("schedule", "{}", found.error().line());
  }
  PENSTOCK_TRY(candidate.options, ReadOwnFields(map));
  candidate.written = candidate.name;
  for (const auto& [key, value] : candidate.options) {
    candidate.written += fmt::format(":{}={}", key, value);
  }
  return candidate;
}

// The candidates that a file names.
Result<std::vector<Candidate>> ReadNamed(const YamlMap& config) {
  std::vector<Candidate> candidates;
  const YAML::Node node = config.Node("schedule");
  if (node.IsSequence()) {
    for (const YAML::Node& entry : node) {
      PENSTOCK_TRY(candidates.emplace_back(), ReadCandidate(config, entry));
    }
    if (candidates.empty()) return config.Refuse("schedule", "the list is empty");
  } else if (!node.IsNull()) {
    PENSTOCK_TRY(candidates.emplace_back(), ReadCandidate(config, node));
  }
  PENSTOCK_TRY(const auto files, config.Texts("csv"));
  for (const std::string& file : files.value_or(std::vector<std::string>())) {
    candidates.push_back({Candidate::Kind::kFile, file});
  }
  return candidates;
}

// The sweep without fields that have one value in the scenario, which takes precedence.
Result<std::vector<SweepAxis>> ReadOpenAxes(const YamlMap& config, const Scenario& scenario) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(config.Node("sweep"), "sweep"));
  PENSTOCK_TRY(std::vector<SweepAxis> axes, ReadSweep(map));
  if (axes.empty()) return config.Refuse("sweep", "it has no keys");
  std::erase_if(axes, [&](const SweepAxis& axis) {
    if (axis.key == kScheduleAxis) return !scenario.schedules.empty();
    return IsGiven(*FindField(axis.key), scenario);
  });
  return axes;
}

Status CheckKeys(const YamlMap& config) {
  std::vector<std::string_view> known = {"schedule", "csv", "sweep"};
  for (const ScenarioField& field : ScenarioFields()) {
    known.push_back(field.name);
    if (!field.former_name.empty() && config.Has(std::string(field.former_name))) {
      known.push_back(field.former_name);
    }
  }
  for (const std::string& key : config.Keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    return tl::unexpected(
        In(fmt::format("line {}", config.LineOf(key)),
           {ErrorCode::kInvalidArgument, fmt::format("the configuration has an unknown key {}; {}",
                                                     Quote(key), MeantField(key, known))}));
  }
  std::string_view first;
  for (const std::string_view source : kCostSources) {
    const std::string key(source);
    if (!config.Has(key)) continue;
    if (!first.empty()) {
      return config.Refuse(key, "{} says what stages cost; keep one of the two", first);
    }
    first = source;
  }
  return {};
}

// Whether a higher source says what stages cost, so that the file's field is of no use.
bool IsHidden(const ScenarioField& field, const Scenario& higher) {
  const bool is_source = std::ranges::find(kCostSources, field.name) != kCostSources.end();
  if (is_source) return higher.has_costs();
  return field.with_model == WithModel::kOnlyWith && higher.has_costs() && !higher.prices_model();
}

PrimusSchedules SchedulesOf(PrimusConfig primus) {
  PrimusSchedules read;
  read.output_dir = std::move(primus.output_dir);
  for (PrimusSchedule& each : primus.schedules) {
    PricedSchedule& priced = read.schedules.emplace_back();
    priced.label = std::move(each.name);
    priced.algorithm = each.algorithm;
    priced.params = std::move(each.params);
    priced.schedule = std::move(each.schedule);
    priced.costs = std::move(each.costs);
  }
  return read;
}

// Refuses a run that is not like the profiled one.
Status CheckProfiled(const std::string& path, const TrainConfig& config, const Scenario& scenario,
                     const StageProfile& profile) {
  const std::vector<std::pair<std::string, std::string>> own = KeysOfProfile(config);
  std::vector<std::pair<std::string, std::string>> run = profile.run;
  // Profiles of CPUs had no such key.
  if (std::ranges::find(run, "device", &std::pair<std::string, std::string>::first) == run.end()) {
    run.emplace_back("device", "cpu");
  }
  for (const auto& [key, value] : run) {
    const auto found = std::ranges::find(own, key, &std::pair<std::string, std::string>::first);
    if (found != own.end() && found->second == value) continue;
    return InvalidParameter("machine", "{}: its profile is of {} {}, {} has {}; profile it again",
                            Quote(*scenario.machine), key, value, path,
                            found == own.end() ? "none" : found->second);
  }
  return {};
}

// Sets the measured costs of the run, if the scenario's machine has them. Returns whether it has.
Result<bool> SetProfileOfRun(const std::string& path, const TrainConfig& config,
                             Scenario& scenario) {
  if (!scenario.machine || scenario.has_costs()) return false;
  PENSTOCK_TRY(const MachineFile machine, ReadMachineFile(*scenario.machine));
  if (!machine.profile) return false;
  PENSTOCK_TRY_STATUS(CheckCanProfile(config));
  PENSTOCK_TRY_STATUS(CheckProfiled(path, config, scenario, *machine.profile));
  const ParallelConfig& parallel = config.parallel;
  scenario.profiled = ProfiledModel{*machine.profile, config.model.layers,
                                    config.pipeline.stage_layers, parallel.data, parallel.zero > 0};
  return true;
}

// Sets the fields that `scenario` leaves open from a training configuration: what its run costs.
Status FillFromRun(const std::string& path, Scenario& scenario) {
  PENSTOCK_TRY(const TrainConfig config, LoadTrainConfig(path));
  PENSTOCK_TRY(const bool profiled, SetProfileOfRun(path, config, scenario));
  if (!profiled && !scenario.device) {
    return InvalidParameter("device",
                            ": {} is a training configuration, which names none; give one, or what "
                            "'penstock profile' measured as `machine`",
                            path);
  }
  PENSTOCK_TRY(const RunToPrice run, RunToPriceOf(config));
  Scenario read;
  for (const auto& [name, value] : run.fields) {
    if (name == "schedule") {
      read.schedules.push_back({Candidate::Kind::kAlgorithm, value});
    } else if (name == "csv") {
      read.schedules.push_back({Candidate::Kind::kFile, value});
    } else {
      PENSTOCK_TRY_STATUS(SetText(*FindField(name), value, read));
    }
  }
  // Recomputation and all else that passes add is measured as part of the actions.
  if (profiled) read.pass = {UpdatePassOf(config.optimizer)};
  const Scenario higher = scenario;
  if (higher.schedules.empty()) scenario.schedules = read.schedules;
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, read) || IsGiven(field, higher) || IsHidden(field, higher)) continue;
    FillFrom(field, read, scenario);
    scenario.places[std::string(field.name)] = path;
  }
  if (!higher.has_costs()) {
    scenario.model = path;
    scenario.shape = run.shape;
  }
  if (!run.not_priced.empty() && !profiled) {
    scenario.remark = fmt::format("not priced: {}", fmt::join(run.not_priced, ", "));
  }
  return {};
}

Result<std::optional<PrimusSchedules>> Read(const std::string& path, const YAML::Node& root,
                                            const Purpose& purpose, Scenario& scenario) {
  const bool is_primus = root.IsMap() && root["schedulers"].IsDefined();
  PENSTOCK_TRY(const YamlMap config,
               YamlMap::Of(root, "the configuration",
                           is_primus ? YamlMap::Null::kMissing : YamlMap::Null::kRefused));
  if (!IsPrimusConfig(config)) {
    PENSTOCK_TRY_STATUS(FillFromYaml(path, config, purpose, scenario));
    return std::nullopt;
  }
  PENSTOCK_TRY_STATUS(
      RefuseOthers(scenario, {"pass", "price", "repeat"},
                   "in a configuration of Primus's simulator the schedulers say all"));
  PENSTOCK_TRY(PrimusConfig primus, ReadPrimusConfig(config));
  return SchedulesOf(std::move(primus));
}

}  // namespace

Status FillFromYaml(const std::string& path, const YamlMap& config, const Purpose& purpose,
                    Scenario& scenario) {
  PENSTOCK_TRY_STATUS(CheckKeys(config));
  const Scenario higher = scenario;
  const auto note = [&](std::string_view field, const std::string& key) {
    scenario.places[std::string(field)] = fmt::format("{}: line {}", path, config.LineOf(key));
  };
  if (config.Has("sweep") && !purpose.sweeps) {
    return config.Refuse("sweep", "only 'penstock simulate' runs sweeps");
  }
  if (config.Has("sweep") && higher.sweep.empty()) {
    PENSTOCK_TRY(scenario.sweep, ReadOpenAxes(config, higher));
    note("sweep", "sweep");
  }
  PENSTOCK_TRY(std::vector<Candidate> candidates, ReadNamed(config));
  if (higher.schedules.empty() && !candidates.empty()) {
    scenario.schedules = std::move(candidates);
    const char* const key = config.Has("schedule") ? "schedule" : "csv";
    note(key, key);
  }
  Scenario read;
  for (const ScenarioField& field : ScenarioFields()) {
    PENSTOCK_TRY_STATUS(SetFromYaml(field, config, read));
    if (!IsGiven(field, read) || IsGiven(field, higher) || IsHidden(field, higher)) continue;
    FillFrom(field, read, scenario);
    note(field.name, KeyOf(field, config));
  }
  return {};
}

Result<std::optional<PrimusSchedules>> ReadScenarioFile(const std::string& path,
                                                        const Purpose& purpose,
                                                        Scenario& scenario) {
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  if (IsTrainConfig(root)) {
    PENSTOCK_TRY_STATUS(FillFromRun(path, scenario));
    return std::nullopt;
  }
  auto read = Read(path, root, purpose, scenario);
  if (!read) return tl::unexpected(In(path, std::move(read).error()));
  return read;
}

}  // namespace penstock
