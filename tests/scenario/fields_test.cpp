#include "scenario/fields.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text/yaml_map.h"
#include "scenario/own_fields.h"
#include "scenario/price/read_file.h"

namespace penstock {
namespace {

// A value of a field as users write it.
std::string TextOf(const ScenarioField& field) {
  if (!field.choices.empty()) return std::string(field.choices.back());
  if (std::holds_alternative<std::optional<bool> Scenario::*>(field.member)) return "true";
  if (std::holds_alternative<std::optional<double> Scenario::*>(field.member)) return "0.5";
  if (field.is_joined) return "1,2";
  return "3";
}

// Returns a configuration that gives a field whose value is a map or a list of maps.
std::string YamlOf(const ScenarioField& field) {
  if (field.name == "topology") return "topology: [{level: a, latency: 1, bandwidth: 2}]\n";
  if (field.name == "collectives") {
    return "collectives: {replicas: 4, levels: [{level: a, latency: 1, bandwidth: 2}]}\n";
  }
  return fmt::format("{}: [{{forward: 2, activation: 3}}]\n", field.name);
}

Scenario Read(const std::string& yaml) {
  const YamlMap config = YamlMap::Of(ParseYaml(yaml).value(), "the test").value();
  Scenario scenario;
  const Status status = FillFromYaml("a.yaml", config, {.sweeps = true}, scenario);
  EXPECT_TRUE(status) << yaml << status.error().line();
  return scenario;
}

Scenario With(const ScenarioField& field) {
  if (IsNested(field)) return Read(YamlOf(field));
  Scenario scenario;
  EXPECT_TRUE(SetText(field, TextOf(field), scenario)) << field.name;
  return scenario;
}

TEST(ScenarioFields, HaveDifferentNamesAndHelp) {
  std::set<std::string_view> names;
  for (const ScenarioField& field : ScenarioFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_EQ(FindField(field.name), &field);
  }
}

TEST(ScenarioFields, AreGivenOnceSetAndNotAfterReset) {
  for (const ScenarioField& field : ScenarioFields()) {
    Scenario scenario = With(field);
    EXPECT_EQ(GivenFields(scenario), std::vector<std::string_view>{field.name});
    Scenario other;
    FillFrom(field, scenario, other);
    EXPECT_TRUE(IsGiven(field, other)) << field.name;
    Reset(field, scenario);
    EXPECT_TRUE(GivenFields(scenario).empty()) << field.name;
  }
}

TEST(ScenarioFields, AreReadFromTheYamlThatTheyAreWrittenAs) {
  for (const ScenarioField& field : ScenarioFields()) {
    const Scenario scenario = With(field);
    const std::string yaml = ToYaml(field, scenario);
    const Scenario read = Read(yaml);
    EXPECT_EQ(GivenFields(read), std::vector<std::string_view>{field.name}) << yaml;
    EXPECT_EQ(ToYaml(field, read), yaml);
    EXPECT_EQ(read.places.at(std::string(field.name)), "a.yaml: line 1");
  }
}

TEST(ScenarioFields, RefuseOtherKindsOfValuesByTheirName) {
  for (const ScenarioField& field : ScenarioFields()) {
    Scenario scenario;
    for (const char* text : {"", "x y"}) {
      const Status status = SetText(field, text, scenario);
      if (status) continue;  // text is parsed where it is used
      EXPECT_EQ(status.error().parameter, field.name);
      EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    }
    EXPECT_FALSE(SetText(field, "", scenario)) << field.name;
  }
}

TEST(ScenarioFields, RefuseNumbersOutsideOfTheirRange) {
  for (const ScenarioField& field : ScenarioFields()) {
    const bool is_int = std::holds_alternative<std::optional<int> Scenario::*>(field.member);
    if (!is_int || field.least < 0) continue;
    Scenario scenario;
    ASSERT_TRUE(SetText(field, fmt::format("{}", field.least - 1), scenario));
    const Status status = CheckRanges(scenario);
    ASSERT_FALSE(status) << field.name;
    EXPECT_EQ(status.error().parameter, field.name);
  }
}

TEST(ScenarioFields, OneCandidateMayHaveItsOwn) {
  for (const ScenarioField& field : ScenarioFields()) {
    EXPECT_FALSE(IsNested(field) && field.in_candidates) << field.name;
    if (!field.in_candidates) continue;
    Scenario scenario = With(field);
    ASSERT_TRUE(ApplyOwnFields({{std::string(field.name), TextOf(field)}}, scenario));
    EXPECT_EQ(ToYaml(field, scenario), ToYaml(field, With(field))) << "a list is replaced";
  }
}

}  // namespace
}  // namespace penstock
