// A stage that fails ends the run on all ranks, whatever they wait for.
#include <gtest/gtest.h>

#include <stdexcept>

#include "config/replicas.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

// Trains replicas of a pipeline of four ranks. Reading the targets of microbatch `failing` of step
// 1 fails. Returns the error of the run.
Error Fail(const ParallelConfig& parallel, int failing) {
  TrainConfig config = TinyConfig();
  config.parallel = parallel;
  Schedule schedule =
      AddDataParallelism(Generate("1f1b", {.ranks = 4, .microbatches = 4}).value(), parallel.data)
          .value();
  schedule = ShardSchedule(schedule, parallel).value();
  config.pipeline.microbatches = schedule.microbatches;
  const std::vector<std::uint8_t> text = Text();
  BatchSource source = MakeBatchSource(Sampler(text, config.model.sequence, 1), config);
  source.targets = [=, targets = source.targets](std::int64_t step, int microbatch) {
    if (step == 1 && microbatch == failing) throw std::runtime_error("the disk is gone");
    return targets(step, microbatch);
  };
  const auto pipeline = BuildPipeline(config, schedule, source).value();
  RunOptions options = {.steps = 3};
  options.update.zero = pipeline.zero;
  const Status status = RunRanks(schedule, pipeline.pointers(), options);
  EXPECT_FALSE(status);
  return status ? Error{} : status.error();
}

TEST(StageFailure, EndsTheRunWithItsAction) {
  const Error error = Fail({}, 2);
  EXPECT_EQ(error.code, ErrorCode::kUnavailable);
  EXPECT_NE(error.line().find("rank 3: 3F2: the disk is gone"), std::string::npos) << error.line();
}

TEST(StageFailure, EndsReplicasThatWaitForWeightsOrGradients) {
  for (const int zero : {1, 2, 3}) {
    const Error error = Fail({.data = 2, .zero = zero}, 6);  // microbatch 2 of replica 1
    EXPECT_EQ(error.code, ErrorCode::kUnavailable);
    EXPECT_TRUE(Contains(error.line(), "rank 7: 7F2: the disk is gone"));
  }
}

}  // namespace
}  // namespace penstock
