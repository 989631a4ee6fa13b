#include "config/parameter_groups.h"

#include <array>
#include <limits>
#include <regex>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"

namespace penstock {
namespace {

constexpr std::size_t kMostGroups = 1000;
constexpr std::size_t kLongestMatch = 256;  // characters; std::regex recurses over them
constexpr double kAnyNumber = std::numeric_limits<double>::max();

struct GroupNumber {
  std::string_view key;
  std::optional<double> ParameterGroup::*value;
  double least, below;
};
constexpr std::array<GroupNumber, 6> kGroupNumbers = {{
    {"lr_scale", &ParameterGroup::lr_scale, 0, kAnyNumber},
    {"weight_decay", &ParameterGroup::weight_decay, 0, kAnyNumber},
    {"beta1", &ParameterGroup::beta1, 0, 1},
    {"beta2", &ParameterGroup::beta2, 0, 1},
    {"epsilon", &ParameterGroup::epsilon, 1e-37, kAnyNumber},
    {"momentum", &ParameterGroup::momentum, 0, 1},
}};

Status CheckMatch(const std::string& match) {
  if (match.size() > kLongestMatch) {
    return InvalidArgument("match: an expression of at most {} characters is needed",
                           kLongestMatch);
  }
  if (Printable(match) != match) {
    return InvalidArgument("match: {} has a control character or is not UTF-8", Quote(match));
  }
  try {
    static_cast<void>(std::regex(match));
    return {};
  } catch (const std::regex_error& error) {
    return InvalidArgument("match: {} is not a regular expression: {}", Quote(match), error.what());
  }
}

Result<ParameterGroup> ReadGroup(const YAML::Node& node) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(node, "a group"));
  // The learning rate's name in other frameworks.
  const char* const scale = map.Has("learning_rate_scale") ? "learning_rate_scale" : "lr_scale";
  std::vector<std::string_view> known = {"match", "name", scale};
  for (const GroupNumber& number : kGroupNumbers) known.push_back(number.key);
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  ParameterGroup group;
  PENSTOCK_TRY(const auto match, map.Text("match"));
  if (!match) return InvalidArgument("a group needs 'match', an expression for names");
  group.match = *match;
  PENSTOCK_TRY_STATUS(CheckMatch(group.match));
  PENSTOCK_TRY(group.name, map.Text("name"));
  if (group.name && *group.name != "adamw" && *group.name != "muon") {
    return InvalidArgument("name: {} is not one of adamw, muon{}", Quote(*group.name),
                           Suggestion(*group.name, {"adamw", "muon"}));
  }
  for (const GroupNumber& number : kGroupNumbers) {
    const std::string key(number.key == "lr_scale" ? scale : number.key);
    PENSTOCK_TRY(group.*number.value, map.Number(key));
    const std::optional<double>& value = group.*number.value;
    if (!value || (*value >= number.least && *value < number.below)) continue;
    return InvalidArgument("{}: {} is out of range: at least {}{}", key, *value, number.least,
                           number.below == 1 ? " and below 1" : "");
  }
  return group;
}

}  // namespace

Result<std::vector<ParameterGroup>> ReadParameterGroups(const YAML::Node& list) {
  if (list.IsNull()) return std::vector<ParameterGroup>();
  if (!list.IsSequence() || list.size() > kMostGroups) {
    return InvalidArgument(
        "a list of at most {} groups is needed, such as [{{match: \"norm|bias\", weight_decay: "
        "0}}]",
        kMostGroups);
  }
  std::vector<ParameterGroup> groups;
  for (const YAML::Node& node : list) {
    PENSTOCK_TRY(ParameterGroup group, ReadGroup(node));
    groups.push_back(std::move(group));
  }
  return groups;
}

Result<std::vector<ParameterGroup>> ParseParameterGroups(std::string_view text) {
  PENSTOCK_TRY(const YAML::Node node, ParseYaml(std::string(text)));
  return ReadParameterGroups(node);
}

std::string FormatParameterGroups(const std::vector<ParameterGroup>& groups) {
  std::string text;
  for (const ParameterGroup& group : groups) {
    YAML::Emitter match;
    match << YAML::SingleQuoted << group.match;
    text += fmt::format("{}{{match: {}", text.empty() ? "" : ", ", match.c_str());
    if (group.name) text += fmt::format(", name: {}", *group.name);
    for (const GroupNumber& number : kGroupNumbers) {
      if (group.*number.value) text += fmt::format(", {}: {}", number.key, *(group.*number.value));
    }
    text += '}';
  }
  return text.empty() ? text : "[" + text + "]";
}

}  // namespace penstock
