#include "scenario/machine/machine_file.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/kept_files.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "scenario/fields.h"
#include "scenario/nested_values.h"

namespace penstock {
namespace {

// A scenario without a release uses the newest release.
constexpr std::string_view kRelease = "release";

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kDefaults = {
    {{"device", kUsualDevice}, {"precision", "bf16"}, {"implementation", "penstock"}}};

// Steps of a run with measured costs, which may overlap.
constexpr int kProfiledSteps = 4;

std::vector<std::string_view> ConstantNames() {
  std::vector<std::string_view> names = {"for"};
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.fit) names.push_back(field.name);
  }
  return names;
}

Result<std::vector<std::pair<std::string, std::string>>> ReadColumns(const YamlMap& map) {
  std::vector<std::pair<std::string, std::string>> columns;
  for (const std::string& key : map.Keys()) {
    if (FindField(key) == nullptr) {
      return map.Refuse(key, "is no option of 'penstock simulate'");
    }
    PENSTOCK_TRY(const auto text, map.Text(key));
    columns.emplace_back(key, *text);
  }
  return columns;
}

// A value alone, or a map of a value and its error.
Status ReadValue(const YamlMap& map, const std::string& key, MachineConstant& constant) {
  const YAML::Node node = map.Node(key);
  if (node.IsMap()) {
    PENSTOCK_TRY(const YamlMap parts, YamlMap::Of(node, key));
    PENSTOCK_TRY_STATUS(parts.RequireKnown({"value", "error"}));
    if (!parts.Has("value")) return map.Refuse(key, "give its value");
    PENSTOCK_TRY(const auto value, parts.Text("value"));
    PENSTOCK_TRY(const auto error, parts.Text("error"));
    constant.value = *value;
    constant.error = error.value_or("");
  } else {
    PENSTOCK_TRY(const auto value, map.Text(key));
    constant.value = *value;
  }
  Scenario scenario;
  Status set = SetText(*FindField(key), constant.value, scenario);
  if (set) set = CheckRanges(scenario);
  if (!set) return map.Refuse(key, "{}", set.error().message);
  return {};
}

Status ReadEntry(const YAML::Node& node, MachineFile& machine) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "an entry of constants"));
  PENSTOCK_TRY_STATUS(map.RequireKnown(ConstantNames()));
  std::vector<std::pair<std::string, std::string>> of;
  if (map.Has("for")) {
    PENSTOCK_TRY(const YamlMap columns, YamlMap::Of(map.Node("for"), "for"));
    PENSTOCK_TRY(of, ReadColumns(columns));
  }
  for (const std::string& key : map.Keys()) {
    if (key == "for") continue;
    MachineConstant constant{key, of, "", ""};
    PENSTOCK_TRY_STATUS(ReadValue(map, key, constant));
    machine.constants.push_back(std::move(constant));
  }
  return {};
}

Result<MachineFile> Read(const YAML::Node& root) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(root, "the machine file"));
  PENSTOCK_TRY_STATUS(map.RequireKnown({"constants", "profile"}));
  MachineFile machine;
  if (map.Has("profile")) {
    PENSTOCK_TRY(const YamlMap profile, YamlMap::Of(map.Node("profile"), "profile"));
    PENSTOCK_TRY(machine.profile, ReadStageProfile(profile));
    if (!map.Has("constants")) return machine;
  }
  const YAML::Node list = map.Node("constants");
  if (!list || !list.IsSequence() || list.size() == 0) {
    return map.Refuse("constants", "a list of maps is needed");
  }
  for (const YAML::Node& entry : list) PENSTOCK_TRY_STATUS(ReadEntry(entry, machine));
  return machine;
}

// Sweeps read the same file for every combination.
Result<MachineFile> ReadOnce(const std::string& path) {
  static auto& kept = *new KeptFiles<MachineFile>;
  return kept.Get(path, ReadMachineFile);
}

bool Applies(const MachineConstant& constant, const Scenario& scenario) {
  return std::ranges::all_of(constant.of, [&](const auto& column) {
    const std::string value = EffectiveValue(column.first, scenario);
    return value == column.second || (column.first == kRelease && value.empty());
  });
}

std::string ColumnsText(const MachineConstant& constant, const Scenario& scenario) {
  std::string text;
  for (const auto& [name, value] : constant.of) {
    if (EffectiveValue(name, scenario).empty()) continue;
    text +=
        fmt::format("{}`{}` {}", text.empty() ? "" : " and ", name, EffectiveValue(name, scenario));
  }
  return text;
}

// Returns the machine's constants of the fields that the scenario leaves open.
Result<std::vector<MachineConstant>> OpenConstants(const MachineFile& machine,
                                                   const Scenario& scenario) {
  std::map<std::string_view, const MachineConstant*> values;  // null: none applies
  for (const MachineConstant& constant : machine.constants) {
    const MachineConstant*& value = values[constant.field];
    if (Applies(constant, scenario)) value = &constant;
  }
  std::vector<MachineConstant> open;
  for (const auto& [name, value] : values) {
    if (IsGiven(*FindField(name), scenario)) continue;
    if (value != nullptr) {
      open.push_back(*value);
      continue;
    }
    const auto any = std::ranges::find(machine.constants, name, &MachineConstant::field);
    return InvalidParameter("machine", "{}: it has no {} for {}; calibrate it, or give `{}`",
                            Quote(*scenario.machine), name, ColumnsText(*any, scenario), name);
  }
  return open;
}

std::string InFlow(const std::vector<std::pair<std::string, std::string>>& columns) {
  std::string text;
  for (const auto& [name, value] : columns) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", name, YamlQuote(value));
  }
  return text;
}

// Returns the lines of a text as comments.
std::string CommentText(std::string_view text) {
  std::string comment;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    comment += fmt::format("# {}\n", text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return comment;
}

std::string ConstantText(const MachineConstant& constant) {
  if (constant.error.empty()) return fmt::format("{}: {}\n", constant.field, constant.value);
  return fmt::format("{}: {{value: {}, error: {}}}\n", constant.field, constant.value,
                     constant.error);
}

}  // namespace

std::string EffectiveValue(std::string_view name, const Scenario& scenario) {
  const ScenarioField* const field = FindField(name);
  if (field == nullptr || IsNested(*field)) return "";
  if (IsGiven(*field, scenario)) return TextOf(*field, scenario);
  for (const auto& [key, usual] : kDefaults) {
    if (key == name) return std::string(usual);
  }
  return "";
}

std::string ToYaml(const MachineFile& machine) {
  std::string text = CommentText(machine.remark);
  if (!machine.constants.empty() || !machine.profile) text += "constants:\n";
  for (std::size_t i = 0; i < machine.constants.size(); ++i) {
    const MachineConstant& constant = machine.constants[i];
    if (constant.of.empty()) {
      text += "  - ";
    } else if (i > 0 && machine.constants[i - 1].of == constant.of) {
      text += "    ";  // in the entry of the constant before
    } else {
      text += fmt::format("  - for: {{{}}}\n    ", InFlow(constant.of));
    }
    text += ConstantText(constant);
  }
  if (machine.profile) text += ToYaml(*machine.profile);
  return text;
}

Result<MachineFile> ReadMachineFile(const std::string& path) {
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto machine = Read(root);
  if (!machine) return tl::unexpected(In(path, std::move(machine).error()));
  return machine;
}

void SetProfile(const StageProfile& profile, Scenario& scenario) {
  if (!scenario.profiled) scenario.profiled = ProfiledModel{profile, profile.layers};
  if (!scenario.time_unit) scenario.time_unit = "s";
  if (!scenario.comm && !scenario.bandwidth && !scenario.topology) {
    scenario.comm = TimeValue{profile.comm, true};
  }
  if (!scenario.overlap) scenario.overlap = "sum";  // a core computes one after the other
  if (!scenario.message_bytes && profile.message_bytes > 0) {
    scenario.message_bytes = fmt::format("{:.0f}B", profile.message_bytes);
  }
  const bool updates = std::ranges::any_of(
      scenario.pass, [](const std::string& pass) { return pass.starts_with("optimizer"); });
  if (!updates) scenario.pass.push_back(profile.update);
  if (!scenario.repeat) scenario.repeat = kProfiledSteps;
}

Result<std::vector<MachineConstant>> ConstantsInEffect(const Scenario& scenario) {
  if (!scenario.machine || !scenario.prices_model()) return std::vector<MachineConstant>();
  PENSTOCK_TRY(const MachineFile machine, ReadOnce(*scenario.machine));
  return OpenConstants(machine, scenario);
}

Status FillFromMachine(Scenario& scenario) {
  if (!scenario.machine) return {};
  PENSTOCK_TRY(const MachineFile machine, ReadOnce(*scenario.machine));
  if (machine.profile && (scenario.profiled || !scenario.has_costs())) {
    SetProfile(*machine.profile, scenario);
    return {};
  }
  if (!scenario.prices_model()) {
    return InvalidParameter("machine", "has no effect here: {}; leave it out",
                            machine.profile ? "other costs are given"
                                            : "its constants describe how a `model` is trained");
  }
  if (machine.constants.empty()) {
    return InvalidParameter("machine",
                            "{}: it has only a profile, which is of its own model; leave out "
                            "`model`, or give a file of 'penstock calibrate'",
                            Quote(*scenario.machine));
  }
  PENSTOCK_TRY(const std::vector<MachineConstant> constants, OpenConstants(machine, scenario));
  for (const MachineConstant& constant : constants) {
    PENSTOCK_TRY_STATUS(SetText(*FindField(constant.field), constant.value, scenario));
  }
  return {};
}

}  // namespace penstock
