#include "scenario/own_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text/deprecated_names.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "config/other_names.h"

namespace penstock {

std::vector<std::string_view> OwnFieldNames() {
  std::vector<std::string_view> names;
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.in_candidates) names.push_back(field.name);
  }
  return names;
}

std::string MeantField(std::string_view name, const std::vector<std::string_view>& known) {
  const auto ours = OurNameOf(
      name, [&](std::string_view each) { return std::ranges::find(known, each) != known.end(); });
  if (ours && !ours->empty()) return fmt::format("did you mean '{}'?", *ours);
  return DidYouMean(name, known, "'penstock simulate --help' lists the options");
}

Result<std::string> FindOwnField(std::string_view word, std::span<const std::string_view> more) {
  std::string key(word);
  std::replace(key.begin(), key.end(), '-', '_');
  key = CurrentFieldName(CurrentName(key));
  for (const ScenarioField& field : ScenarioFields()) {
    if (!field.short_name.empty() && key == field.short_name) return std::string(field.name);
  }
  std::vector<std::string_view> names = OwnFieldNames();
  names.insert(names.end(), more.begin(), more.end());
  if (std::ranges::find(names, key) != names.end()) return key;
  if (key.empty()) return InvalidArgument("an option is empty; write NAME=VALUE");
  return InvalidArgument("{} is not an option of a schedule; {}", Quote(word),
                         MeantField(key, names));
}

Result<FieldTexts> ParseOwnFields(std::string_view text) {
  FieldTexts own;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t equals = std::min(word.find('='), word.size());
    PENSTOCK_TRY(std::string name, FindOwnField(word.substr(0, equals)));
    std::string value(word.substr(std::min(equals + 1, word.size())));
    if (name == "split" && equals == word.size()) value = "true";
    if (value.empty()) return InvalidArgument("{} has no value; write {}=VALUE", Quote(word), name);
    own.emplace_back(std::move(name), std::move(value));
    begin = end + 1;
  }
  return own;
}

Result<FieldTexts> ReadOwnFields(const YamlMap& map) {
  FieldTexts own;
  for (const std::string& word : map.Keys()) {
    if (word == "schedule" || word == "csv") continue;
    const auto name = FindOwnField(word);
    if (!name) return map.Refuse(word, "{}", name.error().line());
    const ScenarioField& field = *FindField(*name);
    PENSTOCK_TRY(const auto texts, map.Texts(word));
    std::vector<std::string> values = texts.value_or(std::vector<std::string>());
    if (field.is_joined) values.assign(1, fmt::format("{}", fmt::join(values, ",")));
    if (values.size() > 1 && !IsList(field)) return map.Refuse(word, "one value is needed");
    for (std::string& value : values) own.emplace_back(*name, std::move(value));
  }
  return own;
}

Status ApplyOwnFields(const FieldTexts& own, Scenario& scenario) {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : own) {
    const ScenarioField& field = *FindField(name);
    const bool first = seen.insert(name).second;
    if (!first && !IsList(field)) return InvalidParameter(name, "is given twice");
    if (first) Reset(field, scenario);
    if (name == "cost") {
      scenario.stage_costs.reset();
      scenario.layer_costs.reset();
    }
    PENSTOCK_TRY_STATUS(SetText(field, value, scenario));
    scenario.places.erase(name);
  }
  return {};
}

}  // namespace penstock
