// Groups are read from YAML and overrides, the first match decides, and mistakes are refused.
#include "config/parameter_groups.h"

#include <gtest/gtest.h>

#include "config/parameter_rules.h"
#include "config/train_config.h"
#include "tests/results.h"

namespace penstock {
namespace {

TrainConfig FromYaml(const std::string& text) { return ParseTrainConfig(text, "a.yaml").value(); }

TEST(ParameterGroups, AreTheSameFromAFileAnOverrideAndTheirText) {
  const TrainConfig file = FromYaml(
      "optimizer:\n"
      "  groups:\n"
      "    - {match: \"norm|bias\", weight_decay: 0}\n"
      "    - match: 'it''s\\.'\n"
      "      learning_rate_scale: 0.1\n"
      "      beta1: 0.8\n"
      "      name: muon\n");
  const auto given = ParseTrainConfig("", "none",
                                      {"optimizer.groups=[{match: 'norm|bias', weight_decay: 0}, "
                                       "{match: \"it's\\\\.\", name: muon, "
                                       "lr_scale: 0.1, beta1: 0.8}]"});
  ASSERT_TRUE(given) << given.error().line();
  EXPECT_EQ(file.optimizer.groups, given->optimizer.groups);
  EXPECT_TRUE(DifferentKeys(file, *given).empty());
  const TrainConfig again = FromYaml(ToYaml(file));
  EXPECT_EQ(again.optimizer.groups, file.optimizer.groups);
  const auto groups = ParseParameterGroups(file.optimizer.groups).value();
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1].match, "it's\\.");
  EXPECT_EQ(groups[1].lr_scale, 0.1);
  EXPECT_FALSE(groups[1].weight_decay);
}

TEST(ParameterGroups, TheFirstMatchDecides) {
  OptimizerConfig config = {
      .groups = "[{match: 'layers.0', lr_scale: 2}, {match: wq, lr_scale: 3, beta2: 0.5}]"};
  const ParameterRules rules(config);
  EXPECT_EQ(rules.Of("layers.0.wq.weight", 2).lr_scale, 2);
  EXPECT_EQ(rules.Of("layers.0.wq.weight", 2).beta2, config.beta2);
  EXPECT_EQ(rules.Of("layers.1.wq.weight", 2).lr_scale, 3);
  EXPECT_EQ(rules.Of("layers.1.wq.weight", 2).beta2, 0.5);
  EXPECT_EQ(rules.Of("norm.weight", 1), ParameterRules(OptimizerConfig()).Of("norm.weight", 1));
}

TEST(ParameterGroups, RefusesGroupsWithoutParameters) {
  const std::vector<std::string> names = {"embedding.weight", "layers.0.attention_norm.weight"};
  const auto error = [&](const std::string& groups) {
    return LineOf(ParameterRules({.groups = groups}).Check(names));
  };
  EXPECT_EQ(error("[{match: embed}, {match: norm}]"), "");
  EXPECT_TRUE(Contains(error("[{match: embeding.weight}]"), "did you mean 'embedding.weight'?"));
  EXPECT_TRUE(Contains(error("[{match: 'norm|embed'}, {match: norm}]"), "earlier"));
}

TEST(ParameterGroups, RefusesInvalidOnesWithTheirPlace) {
  for (const auto& [text, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[{weight_decay: 0}]", "match"},
           {"[{match: a, wieght_decay: 0}]", "weight_decay"},
           {"[{match: 'a['}]", "regular expression"},
           {"[{match: a, beta1: 1}]", "below 1"},
           {"[{match: a, lr_scale: -1}]", "at least 0"},
           {"[{match: a, name: moun}]", "muon"},
           {"{match: a}", "optimizer.groups"},
           {"[a]", "map"}}) {
    const auto config = ParseTrainConfig("", "none", {"optimizer.groups=" + text});
    ASSERT_FALSE(config) << text;
    EXPECT_TRUE(Contains(config.error().line(), "optimizer.groups"));
    EXPECT_TRUE(Contains(config.error().line(), expected));
    const auto file = ParseTrainConfig("steps: 3\noptimizer:\n  groups: " + text + "\n", "a.yaml");
    ASSERT_FALSE(file) << text;
    EXPECT_TRUE(file.error().line().starts_with("a.yaml: line 3: ")) << file.error().line();
  }
}

}  // namespace
}  // namespace penstock
