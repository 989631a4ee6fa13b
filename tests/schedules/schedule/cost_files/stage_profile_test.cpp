#include "schedule/cost_files/stage_profile.h"

#include <gtest/gtest.h>

#include "tests/results.h"

namespace penstock {
namespace {

// A cost of `stage` without layers and of `layer` for each.
CostsByDepth Of(double stage, double layer) {
  CostsByDepth costs{NoCosts(), NoCosts()};
  for (const auto cost :
       {&StageCosts::forward, &StageCosts::backward_input, &StageCosts::backward_weight,
        &StageCosts::step, &StageCosts::gradients}) {
    costs.stage.*cost = stage;
    costs.layer.*cost = layer;
  }
  return costs;
}

StageProfile ThreePlaces() {
  StageProfile profile = {.ranks = 2,
                          .cores = 4,
                          .layers = 8,
                          .comm = 2e-5,
                          .message_bytes = 4096,
                          .early_gradients = true,
                          .update = "optimizer=post-validation",
                          .between_threads = {1e-6, 2e-6, 3e-6, 4},
                          .between_processes = {1e-5, 2e-5, 3e-5, 1e9},
                          .first = Of(2, 10),
                          .middle = Of(1, 10),
                          .last = Of(5, 10),
                          .run = {{"model.dim", "16"}, {"data.path", "a \"b\" \\ c"}}};
  return profile;
}

Result<StageProfile> Read(const std::string& text) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(YAML::Load(text)["profile"], "profile"));
  return ReadStageProfile(map);
}

std::vector<double> ForwardsOf(const std::vector<std::int64_t>& layers, int replicas = 1) {
  std::vector<double> forwards;
  for (const StageCosts& stage : StagesOfProfile(ThreePlaces(), layers, replicas)) {
    forwards.push_back(stage.forward);
  }
  return forwards;
}

TEST(StageProfileTest, TwoDepthsGiveTheCostsOfAnyNumberOfLayers) {
  StageCosts one = NoCosts(), three = NoCosts();
  one.forward = 12;
  three.forward = 32;
  const CostsByDepth fitted = FitDepth(one, three, 3);
  EXPECT_EQ(fitted.layer.forward, 10);
  EXPECT_EQ(fitted.stage.forward, 2);
  EXPECT_EQ(fitted.layer.step, 0);
}

TEST(StageProfileTest, NoiseMakesNoCostNegative) {
  StageCosts one = NoCosts(), two = NoCosts();
  one.forward = 12;
  two.forward = 11;
  one.backward_input = 1;
  two.backward_input = 4;
  const CostsByDepth fitted = FitDepth(one, two, 2);
  EXPECT_EQ(fitted.layer.forward, 0);
  EXPECT_EQ(fitted.stage.forward, 11);
  EXPECT_EQ(fitted.layer.backward_input, 2);  // what two layers take is measured, and no more
  EXPECT_EQ(fitted.stage.backward_input, 0);
}

TEST(StageProfileTest, StagesCostWhatTheirPlaceAndLayersDo) {
  EXPECT_EQ(ForwardsOf({2, 1, 2}), (std::vector<double>{22, 11, 25}));
  EXPECT_EQ(ForwardsOf({1, 3}), (std::vector<double>{12, 35}));
  EXPECT_EQ(ForwardsOf({3}), (std::vector<double>{36}));  // what the ends have more, once each
  EXPECT_EQ(ForwardsOf({1, 1}, 2), (std::vector<double>{12, 15, 12, 15}));
}

TEST(StageProfileTest, ReplicasAddAnAllReduceToUpdates) {
  StageProfile profile = ThreePlaces();
  profile.between_threads = {0, 0, 3, 5};
  const std::vector<StageCosts> alone = StagesOfProfile(profile, {1, 1}, 1);
  std::vector<StageCosts> stages = alone;
  AddReplicas(profile, 1, false, stages);
  EXPECT_EQ(stages[0].step, alone[0].step);
  AddReplicas(profile, 2, false, stages);
  EXPECT_DOUBLE_EQ(stages[0].step, alone[0].step + 3 + alone[0].gradients / 5);
  stages = alone;
  AddReplicas(profile, 4, true, stages);
  EXPECT_DOUBLE_EQ(stages[1].step, alone[1].step / 4 + 3 + 1.5 * alone[1].gradients / 5);
}

TEST(StageProfileTest, ReadsWhatItWrites) {
  const StageProfile profile = ThreePlaces();
  const auto read = ValueOf(Read(ToYaml(profile)));
  EXPECT_EQ(ToYaml(read), ToYaml(profile));
  EXPECT_EQ(read.run, profile.run);
  EXPECT_EQ(read.between_processes.all_reduce_bandwidth, 1e9);
  EXPECT_EQ(read.last.stage.step, 5);
}

TEST(StageProfileTest, WholeBackwardsMayTakeLessThanTheirParts) {
  StageProfile profile = ThreePlaces();
  profile.middle.layer.saved_by_whole_backward = 8;
  const auto read = ValueOf(Read(ToYaml(profile)));
  EXPECT_NEAR(read.middle.layer.Backward(), 12, 1e-9);
}

TEST(StageProfileTest, RefusalsNameTheKey) {
  const std::string text = ToYaml(ThreePlaces());
  const auto refusal = [&](const std::string& old, const std::string& changed) {
    std::string wrong = text;
    wrong.replace(wrong.find(old), old.size(), changed);
    return LineOf(Read(wrong));
  };
  for (const auto& [old, changed, expected] :
       {std::array{"ranks: 2", "ranks: 0", "ranks: give a number from 1 on"},
        std::array{"comm: 2e-05", "comm: -1", "comm: give 0 to"},
        std::array{"update: optimizer", "update: never", "update: give optimizer or"},
        std::array{"latency: 1e-06", "latency: x", "latency"},
        std::array{"latency: 1e-06", "delay: 1e-06", "delay"},
        std::array{"forward: 2", "forward: -2", "forward"},
        std::array{"    layer: {", "    layers: {", "layers"},
        std::array{"  last:", "  lost:", "lost"}}) {
    EXPECT_NE(refusal(old, changed).find(expected), std::string::npos) << refusal(old, changed);
  }
}

}  // namespace
}  // namespace penstock
