// Random numbers are a function of the seed, the step, the microbatch and the position in the
// model: a run with dropout trains to the same numbers whatever the stages, the schedule and the
// replicas.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/train/run/trained_model.h"

namespace penstock {
namespace {

struct RandomRun {
  std::string schedule = "1f1b";
  int ranks = 1;
  int stages = 0;  // 0: one per rank
  std::vector<std::int64_t> stage_layers = {};
  int data = 1;
  std::string recompute = "all";
  // Whether gradients are added in the order of the microbatches, as with one stage.
  bool in_order = true;
};

TrainedModel TrainRandomly(const std::string& model, const RandomRun& run, double dropout = 0.3) {
  TrainConfig config = TinyConfig();
  config.exact = true;
  config.fuse = false;
  config.model.name = model;
  config.model.layers = 8;
  config.model.options["dropout"] = fmt::format("{}", dropout);
  // Stages add the gradients of a shared weight in another order than one stage.
  if (model == "gpt2") config.model.options["tied"] = "false";
  config.pipeline.schedule = run.schedule;
  config.pipeline.ranks = run.ranks;
  config.pipeline.stages = run.stages > 0 ? run.stages : run.ranks;
  config.pipeline.stage_layers = run.stage_layers;
  config.pipeline.microbatches = 8;
  config.parallel.data = run.data;
  config.recompute.modules = run.recompute;
  return TrainWith(config);
}

class RandomNumbers : public testing::TestWithParam<std::string> {};

TEST_P(RandomNumbers, DependOnNoPartitionScheduleOrReplicas) {
  const TrainedModel whole = TrainRandomly(GetParam(), {.ranks = 1, .stages = 1});
  EXPECT_NE(whole.losses, TrainRandomly(GetParam(), {.ranks = 1, .stages = 1}, 0).losses);
  const std::vector<RandomRun> runs = {
      {.ranks = 2},
      {.ranks = 4},
      {.ranks = 3, .stage_layers = {1, 5, 2}},
      {.schedule = "interleaved", .ranks = 2, .stages = 4},
      {.schedule = "zbv", .ranks = 2, .stages = 4, .in_order = false},
      {.schedule = "zb-h1", .ranks = 4, .in_order = false},
      {.schedule = "gpipe", .ranks = 4, .in_order = false},
      {.schedule = "dualpipe", .ranks = 4, .in_order = false},
      {.ranks = 2, .data = 2, .in_order = false},
      {.ranks = 2, .recompute = "attention+mlp"}};
  for (const RandomRun& run : runs) {
    SCOPED_TRACE(fmt::format("{} {} {} {} {}", run.schedule, run.ranks,
                             fmt::join(run.stage_layers, ","), run.data, run.recompute));
    const TrainedModel other = TrainRandomly(GetParam(), run);
    EXPECT_EQ(other.losses.front(), whole.losses.front());
    if (run.in_order) {
      EXPECT_EQ(other.losses, whole.losses);
    }
    for (const auto& [name, value] : whole.parameters) {
      const at::Tensor& trained = other.parameters.at(name);
      EXPECT_TRUE(run.in_order ? at::equal(value, trained)
                               : at::allclose(value, trained, 1e-3, 1e-5))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomNumbers, testing::Values("gpt2", "llama"));

}  // namespace
}  // namespace penstock
