// Schedules with OFFLOAD, RELOAD and RECOMPUTE actions train to the same bits with less memory.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

constexpr int kOffloadSteps = 4;

struct TrainedWithPool {
  std::vector<at::Tensor> parameters;
  RunMeasure measure;
  Costs costs;
};

TrainConfig ConfigOf(const Schedule& schedule) {
  TrainConfig config;
  config.model.vocabulary = 24;
  config.model.dim = 16;
  config.model.options["heads"] = "2";
  config.model.sequence = 8;
  config.model.layers = schedule.stages();
  config.model.options["dropout"] = "0.25";
  config.optimizer.warmup = 1;
  config.pipeline.microbatches = schedule.microbatches;
  config.offload.pool = std::filesystem::temp_directory_path();
  return config;
}

BatchSource OffloadSourceOf(const TrainConfig& config) {
  static const std::vector<std::uint8_t> text = [] {
    std::vector<std::uint8_t> bytes(400);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 23);
    return bytes;
  }();
  return MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config);
}

TrainedWithPool TrainWith(const Schedule& schedule) {
  at::set_num_threads(1);
  const TrainConfig config = ConfigOf(schedule);
  const auto pipeline = ValueOf(BuildPipeline(config, schedule, OffloadSourceOf(config)));
  Trace trace = Trace::Make(schedule).value();
  RunOptions options = {.steps = kOffloadSteps};
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  options.trace = &trace;
  EXPECT_TRUE(Succeeds(RunRanks(schedule, pipeline.pointers(), options)));
  TrainedWithPool trained;
  for (const auto& [name, value] : pipeline.model.Parameters()) {
    trained.parameters.push_back(value.clone());
  }
  trained.measure = MeasureRun(trace);
  trained.costs = MeasuredCosts(trace);
  return trained;
}

class Offload : public ::testing::TestWithParam<const char*> {
 protected:
  static Schedule Plain() {
    ScheduleParams params = {.ranks = 2, .microbatches = 6};
    return Generate(GetParam(), params).value();
  }
  static Schedule With(const std::vector<std::string>& passes) {
    Schedule schedule = Plain();
    Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
    costs.offload = costs.reload = 0.1;
    return RunSchedulePasses(std::move(schedule), passes, SimulatedContext(costs)).value();
  }
  static void ExpectSameBits(const TrainedWithPool& expected, const TrainedWithPool& actual) {
    ASSERT_EQ(expected.parameters.size(), actual.parameters.size());
    for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
      EXPECT_TRUE(at::equal(expected.parameters[i], actual.parameters[i]));
    }
  }
  // Returns the highest peak of all ranks.
  static std::int64_t Peak(const TrainedWithPool& trained) {
    std::int64_t peak = 0;
    for (const RankMeasure& rank : trained.measure.ranks) {
      peak = std::max(peak, rank.peak_activation_bytes);
    }
    return peak;
  }
  static std::int64_t PredictedPeak(const Schedule& schedule, const TrainedWithPool& trained) {
    return std::llround(Simulate(schedule, trained.costs).value().peak_memory);
  }
};

TEST_P(Offload, TrainsToTheSameBits) {
  const Schedule schedule = With({"offload"});
  ExpectSameBits(TrainWith(Plain()), TrainWith(schedule));
}

TEST_P(Offload, AndRecomputeTrainToTheSameBitsWithLessMemory) {
  const TrainedWithPool plain = TrainWith(Plain());
  const Schedule schedule = With({"recompute"});
  const TrainedWithPool recomputed = TrainWith(schedule);
  ExpectSameBits(plain, recomputed);
  EXPECT_LE(Peak(recomputed), Peak(plain));  // equal if the peak is between I and W
  if (GetParam() == std::string("gpipe")) {
    EXPECT_LT(2 * Peak(recomputed), Peak(plain));
  }
  EXPECT_EQ(Peak(recomputed), PredictedPeak(schedule, recomputed));
  ExpectSameBits(plain, TrainWith(With({"recompute", "offload"})));
}

// RECOMPUTE reads what RELOAD brings back, and may directly follow it.
TEST(OffloadAndRecompute, OfTheSameMicrobatchTrainToTheSameBits) {
  const std::string first = "0F0,0F1,0B0,0B1\n";
  const Schedule plain = ValueOf(ParseCsv(first + "1F0,1F1,1B0,1B1\n"));
  const Schedule both =
      ValueOf(ParseCsv(first + "1F0,1OFFLOAD0,1F1,1RELOAD0,1RECOMPUTE0,1B0,1RECOMPUTE1,1B1\n"));
  const TrainedWithPool expected = TrainWith(plain), actual = TrainWith(both);
  ASSERT_EQ(expected.parameters.size(), actual.parameters.size());
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(expected.parameters[i], actual.parameters[i]));
  }
}

// The stages and the pool are destroyed while microbatches are offloaded or in flight.
TEST_P(Offload, MayEndInTheMiddleOfAStep) {
  const Schedule schedule = With({"offload"});
  TrainConfig config = ConfigOf(schedule);
  BatchSource source = OffloadSourceOf(config);
  source.targets = [targets = source.targets](std::int64_t step, int microbatch) {
    if (step == 1 && microbatch == 4) throw std::runtime_error("the disk is gone");
    return targets(step, microbatch);
  };
  const auto pipeline = ValueOf(BuildPipeline(config, schedule, source));
  RunOptions options = {.steps = kOffloadSteps};
  EXPECT_TRUE(Refused(RunRanks(schedule, pipeline.pointers(), options), "the disk is gone"));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Offload, ::testing::Values("gpipe", "1f1b", "zb-h1", "zbv"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace penstock
