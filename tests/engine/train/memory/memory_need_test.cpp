// The estimated memory need of a run is the memory that it takes.
#include "train/memory/memory_need.h"

#include <gtest/gtest.h>

#include "config/run_schedule.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

struct Prepared {
  TrainConfig config;
  Schedule schedule;
};

Prepared Prepare(TrainConfig config) {
  Schedule schedule = ChooseSchedule(config, 2).value();
  return {std::move(config), std::move(schedule)};
}

MemoryNeed NeedOf(const TrainConfig& config) {
  const Prepared run = Prepare(config);
  const auto need = EstimateMemory(run.config, run.schedule, LocalRanks(run.schedule.ranks()));
  EXPECT_TRUE(need) << need.error().line();
  return need.value_or(MemoryNeed{});
}

TrainConfig SmallRun() {
  TrainConfig config = TinyConfig();
  config.fuse = false;
  config.model.layers = 7;
  config.pipeline.stages = 3;
  config.pipeline.ranks = 3;
  config.pipeline.schedule = "gpipe";
  return config;
}

// Compares with stages of several layers, with the options that change their memory.
TEST(MemoryNeed, EqualsTheMemoryOfTheStages) {
  std::vector<TrainConfig> configs(6, SmallRun());
  configs[1].recompute.hold = "least";
  configs[2].precision = "bf16";
  configs[3].exact = false;
  configs[3].pipeline.stage_layers = {1, 4, 2};
  configs[4].model.name = "gpt2";
  configs[5].recompute.modules = "attention";
  for (const TrainConfig& config : configs) {
    const Prepared run = Prepare(config);
    const MemoryNeed need = NeedOf(config);
    const std::vector<std::uint8_t> text = Text();
    const Sampler sampler(text, config.model.sequence, 1);
    const auto pipeline =
        ValueOf(BuildPipeline(run.config, run.schedule, MakeBatchSource(sampler, run.config)));
    double parameters = 0, saved = 0;
    for (const auto& [name, value] : pipeline.model.AllCopies()) {
      parameters += static_cast<double>(value.numel());
    }
    // Each of two stages sends a copy of the embedding's gradient.
    const double shared =
        config.model.name == "gpt2"
            ? 2.0 * static_cast<double>(config.model.vocabulary * config.model.dim)
            : 0;
    // GPipe has all microbatches in flight at once.
    for (const auto& stage : pipeline.stages) {
      saved += static_cast<double>(stage->SavedBytes()) * run.config.pipeline.microbatches;
    }
    EXPECT_EQ(need.weights, parameters * (config.precision == "bf16" ? 6 : 4));
    EXPECT_EQ(need.gradients, (parameters + shared) * 4);
    EXPECT_EQ(need.optimizer, parameters * 8);
    EXPECT_GE(need.activations, saved);
    if (config.recompute.hold == "all" && config.recompute.modules == "all") {
      EXPECT_LT(need.activations, saved * 1.5);
    } else {  // recomputed values take memory while they are used
      EXPECT_LT(need.activations, NeedOf(SmallRun()).activations);
    }
  }
}

TEST(MemoryNeed, FollowsTheMicrobatchesInFlight) {
  TrainConfig config = SmallRun();
  config.pipeline.microbatches = 30;
  const double all_at_once = NeedOf(config).activations;
  config.pipeline.schedule = "1f1b";  // 3, 2 and 1 in flight
  EXPECT_LT(NeedOf(config).activations, all_at_once / 5);
  config.pipeline.schedule = "pipedream";
  EXPECT_GT(NeedOf(config).weights, NeedOf(SmallRun()).weights * 1.5);  // older versions
  config.pipeline.schedule = "gpipe";
  EXPECT_EQ(NeedOf(config).checkpoint, 0);
  config.checkpoint.every = 1;
  EXPECT_EQ(NeedOf(config).checkpoint, NeedOf(config).weights * 3);
}

// Sizes beyond any machine are refused without an attempt, even if they overflow.
TEST(MemoryNeed, RefusesARunThatDoesNotFit) {
  const auto refused = [](auto change) {
    TrainConfig config = SmallRun();
    change(config);
    const Prepared run = Prepare(config);
    const auto checked =
        CheckMemoryNeed(run.config, run.schedule, LocalRanks(run.schedule.ranks()));
    if (checked) return std::string("fits: ") + *checked;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(checked.error().line().find('\n'), std::string::npos);
    return checked.error().line();
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refused([](TrainConfig&) {}), "fits: memory: about");
  expect(refused([](TrainConfig& config) { config.model.layers = 1'000'000'000; }),
         "use a smaller model.dim, model.layers");
  for (const int zero : {1, 2, 3}) {
    expect(refused([&](TrainConfig& config) {
             config.model.layers = 1'000'000'000;
             config.parallel.data = 2;
             config.parallel.zero = zero;
           }),
           "use a smaller model.dim, model.layers");
  }
  expect(refused([](TrainConfig& config) { config.model.dim = 1'000'000'000; }), "model.dim");
  expect(refused([](TrainConfig& config) { config.model.options["hidden"] = "1000000000"; }),
         "model.dim");
  expect(refused([](TrainConfig& config) { config.batch = 2'000'000'000; }), "smaller batch");
  expect(refused([](TrainConfig& config) {
           config.model.sequence = 1'000'000'000;
           config.batch = 2'000'000'000;
         }),
         "model.sequence");
  expect(refused([](TrainConfig& config) { config.max_memory = "4KiB"; }),
         "max_memory has 4.00 KiB");
  expect(refused([](TrainConfig& config) {
           config.max_memory = "none";
           config.batch = 2'000'000'000;
         }),
         "fits: memory: not checked");
}

}  // namespace
}  // namespace penstock
