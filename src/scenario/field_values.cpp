// Values of fields: as text, in YAML, in range.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "scenario/fields.h"
#include "scenario/nested_values.h"

namespace penstock {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

template <class T>
using Member = std::optional<T> Scenario::*;
using ListMember = std::vector<std::string> Scenario::*;

// Sets a parsed value, or names the field in the error.
template <class T>
Status Assign(const ScenarioField& field, Result<T> read, std::optional<T>& to) {
  if (!read) return InvalidParameter(field.name, ": {}", read.error().line());
  to = *std::move(read);
  return {};
}

Result<bool> ParseBool(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  return InvalidArgument("{}: give true or false", Quote(text));
}

template <class T>
Status AssignFromYaml(Result<std::optional<T>> read, std::optional<T>& to) {
  PENSTOCK_TRY(std::optional<T> value, std::move(read));
  if (value) to = std::move(value);
  return {};
}

Status CheckRange(const ScenarioField& field, double value, double least) {
  if (value >= least && value <= field.most) return {};
  if (field.most == ScenarioField().most) {
    return InvalidParameter(field.name, "{}: at least {} is needed", value, least);
  }
  return InvalidParameter(field.name, "{}: {} to {} is needed", value, least, field.most);
}

}  // namespace

bool IsList(const ScenarioField& field) { return std::holds_alternative<ListMember>(field.member); }
bool IsNested(const ScenarioField& field) {
  return std::holds_alternative<Member<CostList>>(field.member) ||
         std::holds_alternative<Member<Topology>>(field.member) ||
         std::holds_alternative<Member<CollectivesConfig>>(field.member);
}
bool MayContainCommas(const ScenarioField& field) { return IsList(field) || field.is_joined; }

bool IsGiven(const ScenarioField& field, const Scenario& scenario) {
  return std::visit(Overloaded{[&](ListMember member) { return !(scenario.*member).empty(); },
                               [&](Member<bool> member) { return (scenario.*member).has_value(); },
                               [&](auto member) { return (scenario.*member).has_value(); }},
                    field.member);
}

void Reset(const ScenarioField& field, Scenario& scenario) {
  std::visit(Overloaded{[&](ListMember member) { (scenario.*member).clear(); },
                        [&](auto member) { (scenario.*member).reset(); }},
             field.member);
}

Status SetText(const ScenarioField& field, const std::string& text, Scenario& scenario) {
  if (text.empty()) return InvalidParameter(field.name, ": the value is empty; give one");
  return std::visit(
      Overloaded{
          [&](ListMember member) {
            (scenario.*member).push_back(text);
            return Status();
          },
          [&](Member<int> member) { return Assign(field, ParseInt(text), scenario.*member); },
          [&](Member<double> member) { return Assign(field, ParseNumber(text), scenario.*member); },
          [&](Member<bool> member) { return Assign(field, ParseBool(text), scenario.*member); },
          [&](Member<TimeValue> member) {
            return Assign(field, ParseTimeValue(text), scenario.*member);
          },
          [&](Member<std::string> member) {
            scenario.*member = text;
            return Status();
          },
          [&](auto) -> Status {
            return InvalidParameter(field.name, ": only a configuration can give it");
          }},
      field.member);
}

std::string KeyOf(const ScenarioField& field, const YamlMap& config) {
  const std::string former(field.former_name);
  return !former.empty() && config.Has(former) ? former : std::string(field.name);
}

Status SetFromYaml(const ScenarioField& field, const YamlMap& config, Scenario& scenario) {
  const std::string key = KeyOf(field, config);
  if (!config.Has(key)) return {};
  if (CurrentFieldName(key) != key && config.Has(std::string(field.name))) {
    return config.Refuse(key, "it is the former name of {}; keep one of the two", field.name);
  }
  return std::visit(
      Overloaded{
          [&](ListMember member) -> Status {
            PENSTOCK_TRY(auto texts, config.Texts(key));
            if (texts) scenario.*member = *std::move(texts);
            return {};
          },
          [&](Member<int> member) { return AssignFromYaml(config.Int(key), scenario.*member); },
          [&](Member<double> member) {
            return AssignFromYaml(config.Number(key), scenario.*member);
          },
          [&](Member<bool> member) { return AssignFromYaml(config.Bool(key), scenario.*member); },
          [&](Member<TimeValue> member) -> Status {
            PENSTOCK_TRY(const auto text, config.Text(key));
            const auto time = ParseTimeValue(*text);
            if (!time) return config.Refuse(key, "{}", time.error().line());
            scenario.*member = *time;
            return {};
          },
          [&](Member<std::string> member) -> Status {
            if (!field.is_joined) {
              return AssignFromYaml(config.Text(key), scenario.*member);
            }
            PENSTOCK_TRY(const auto parts, config.Texts(key));
            scenario.*member =
                fmt::format("{}", fmt::join(parts.value_or(std::vector<std::string>()), ","));
            return {};
          },
          [&](auto member) { return ReadNested(config, key, (scenario.*member).emplace()); }},
      field.member);
}

std::string TextOf(const ScenarioField& field, const Scenario& scenario) {
  return std::visit(
      Overloaded{
          [&](ListMember member) { return fmt::format("{}", fmt::join(scenario.*member, ",")); },
          [&](Member<TimeValue> member) {
            const TimeValue& time = *(scenario.*member);
            return time.has_unit ? time.text : fmt::format("{}", time.value);
          },
          [&](Member<std::string> member) { return *(scenario.*member); },
          [&](Member<int> member) { return fmt::format("{}", *(scenario.*member)); },
          [&](Member<double> member) { return fmt::format("{}", *(scenario.*member)); },
          [&](Member<bool> member) { return fmt::format("{}", *(scenario.*member)); },
          [&](auto) { return std::string(); }},
      field.member);
}

std::string ToYaml(const ScenarioField& field, const Scenario& scenario) {
  const auto line = [&](const std::string& value) {
    return fmt::format("{}: {}\n", field.name, value);
  };
  return std::visit(
      Overloaded{
          [&](ListMember member) {
            std::vector<std::string> quoted;
            for (const std::string& item : scenario.*member) quoted.push_back(YamlQuote(item));
            return line(fmt::format("[{}]", fmt::join(quoted, ", ")));
          },
          [&](Member<TimeValue> member) {
            const TimeValue& time = *(scenario.*member);
            return line(time.has_unit ? time.text : fmt::format("{}", time.value));
          },
          [&](Member<std::string> member) {
            const std::string& text = *(scenario.*member);
            if (field.is_joined) {
              std::string spaced = text;
              for (std::size_t at = 0; (at = spaced.find(',', at)) != spaced.npos; at += 2) {
                spaced.insert(at + 1, " ");
              }
              return line(fmt::format("[{}]", spaced));
            }
            return line(ParseNumber(text) ? text : YamlQuote(text));
          },
          [&](Member<int> member) { return line(fmt::format("{}", *(scenario.*member))); },
          [&](Member<double> member) { return line(fmt::format("{}", *(scenario.*member))); },
          [&](Member<bool> member) { return line(fmt::format("{}", *(scenario.*member))); },
          [&](auto member) {
            return fmt::format("{}:{}", field.name, WriteNested(*(scenario.*member)));
          }},
      field.member);
}

void FillFrom(const ScenarioField& field, const Scenario& from, Scenario& to) {
  if (IsGiven(field, to) || !IsGiven(field, from)) return;
  std::visit([&](auto member) { to.*member = from.*member; }, field.member);
}

Status CheckRanges(const Scenario& scenario) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario)) continue;
    if (const auto* count = std::get_if<Member<int>>(&field.member)) {
      // No count is negative, whether or not the table has a bound for it.
      PENSTOCK_TRY_STATUS(CheckRange(field, *(scenario.**count), std::max(field.least, 0.0)));
    }
    if (const auto* number = std::get_if<Member<double>>(&field.member)) {
      PENSTOCK_TRY_STATUS(CheckRange(field, *(scenario.**number), field.least));
    }
  }
  return {};
}

std::vector<std::string_view> GivenFields(const Scenario& scenario) {
  std::vector<std::string_view> given;
  for (const ScenarioField& field : ScenarioFields()) {
    if (IsGiven(field, scenario)) given.push_back(field.name);
  }
  return given;
}

}  // namespace penstock
