// What `penstock simulate` prices of a training configuration.
#include "config/run_to_price.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock {
namespace {

RunToPrice Read(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const auto config = ParseTrainConfig(yaml, "a.yaml", overrides);
  EXPECT_TRUE(config) << config.error().line();
  auto run = RunToPriceOf(*config);
  EXPECT_TRUE(run) << run.error().line();
  return *std::move(run);
}

std::string ValueOf(const RunToPrice& run, const std::string& field) {
  std::string values;
  for (const auto& [name, value] : run.fields) {
    if (name == field) values += values.empty() ? value : " " + value;
  }
  return values;
}

TEST(RunToPrice, HasTheChoicesOfTheRun) {
  const RunToPrice run = Read("model: {layers: 8, sequence: 64}\nbatch: 2\n");
  EXPECT_EQ(ValueOf(run, "schedule"), "1f1b");
  EXPECT_EQ(ValueOf(run, "ranks"), "4");
  EXPECT_EQ(ValueOf(run, "microbatches"), "8");
  EXPECT_EQ(ValueOf(run, "micro_batch_size"), "2");
  EXPECT_EQ(ValueOf(run, "sequence"), "64");
  EXPECT_EQ(ValueOf(run, "precision"), "f32");
  EXPECT_EQ(ValueOf(run, "nodes"), "1x4");
  EXPECT_EQ(ValueOf(run, "pass"), "optimizer");
  EXPECT_EQ(ValueOf(run, "device"), "");
  EXPECT_EQ(run.shape.layers, 8);
  EXPECT_TRUE(run.not_priced.empty());
}

// Each key changes the question, or is among the keys that have no price.
TEST(RunToPrice, EveryKeyThatChangesThePriceArrives) {
  const std::string base = "model: {layers: 8}\n";
  const std::tuple<std::vector<std::string>, const char*, const char*> cases[] = {
      {{"schedule=interleaved", "ranks=2", "chunks=4"}, "chunks", "4"},
      {{"schedule=interleaved", "ranks=2", "chunks=2", "group=4"}, "group", "4"},
      {{"schedule=hanayo", "ranks=2", "waves=2"}, "waves", "2"},
      {{"schedule=zbv", "ranks=4"}, "chunks", ""},
      {{"parallel.data=4", "pipeline.microbatches=16"}, "microbatches", "4"},
      {{"parallel.data=4"}, "nodes", "2x8"},
      {{"parallel.data=2", "parallel.zero=1"}, "zero", "1"},
      {{"parallel.data=2", "parallel.zero=2"}, "pass", "reduce-grad optimizer"},
      {{"parallel.data=2", "parallel.zero=3"}, "pass", "sharding=1:0 optimizer"},
      {{"parallel.zero=3"}, "zero", ""},
      {{"recompute.hold=least"}, "pass", "recompute optimizer"},
      {{"parallel.shard_vocabulary=true"}, "pass", "vocabulary optimizer"},
      {{"stage_layers=1,1,2,4", "ranks=4"}, "layout", "1,1,2,4"},
      {{"precision=bf16"}, "precision", "bf16"}};
  for (const auto& [overrides, field, value] : cases) {
    EXPECT_EQ(ValueOf(Read(base, overrides), field), value) << field;
  }
  for (const char* const key :
       {"recompute.hold=2MiB", "pipeline.comm=0.1", "optimizer.name=muon", "optimizer.ema=0.9"}) {
    EXPECT_EQ(Read(base, {key, "ranks=4"}).not_priced.size(), 1U) << key;
  }
}

TEST(RunToPrice, KnowsATrainingConfigurationByItsSections) {
  EXPECT_TRUE(IsTrainConfig(YAML::Load("{name: a, model: {dim: 8}}")));
  EXPECT_TRUE(IsTrainConfig(YAML::Load("{pipeline: {ranks: 2}}")));
  EXPECT_FALSE(IsTrainConfig(YAML::Load("{schedule: 1f1b, model: llama-3-8b, data: 2}")));
  EXPECT_FALSE(IsTrainConfig(YAML::Load("[1]")));
}

}  // namespace
}  // namespace penstock
