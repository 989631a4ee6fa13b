// A tiny model after a training run in this process.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/index.h"
#include "config/replicas.h"
#include "config/run_schedule.h"
#include "runtime/executor/run.h"
#include "tests/engine/train/tiny_run.h"
#include "train/run/pipeline.h"

namespace penstock {

struct TrainedModel {
  std::vector<double> losses;                    // by step
  std::map<std::string, at::Tensor> parameters;  // gathered, by name
  std::vector<std::int64_t> saved;               // by stage: bytes of a microbatch, predicted
  Costs measured;
};

// Trains all steps of the configuration. Calls `on_built` before the first one.
inline TrainedModel TrainWith(
    TrainConfig config,
    const std::function<void(const Schedule&, const Pipeline&)>& on_built = {}) {
  at::set_num_threads(1);
  const Schedule schedule = ChooseSchedule(config, 2).value();
  const std::vector<std::uint8_t> text = Text();
  const BatchSource source =
      MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config);
  auto built = BuildPipeline(config, schedule, source);
  EXPECT_TRUE(built) << built.error().line();
  Pipeline pipeline = *std::move(built);
  if (on_built) on_built(schedule, pipeline);
  TrainedModel result;
  result.losses.resize(Index(config.steps * schedule.steps));
  Trace trace = Trace::Make(schedule).value();
  RunOptions options = {.steps = config.steps, .update = UpdateRuleOf(config.optimizer)};
  options.update.zero = pipeline.zero;
  options.trace = &trace;
  options.planes = Planes(config.parallel).ranks();
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t step) {
    if (rank == last * options.planes) result.losses[Index(step)] = pipeline.StepLoss();
  };
  const std::vector<Stage*> stages = pipeline.pointers();
  const Status status = RunRanks(schedule, stages, options);
  EXPECT_TRUE(status) << status.error().line();
  GatherWeights(pipeline, schedule);
  result.parameters = ByName(pipeline.model);
  DropGatheredWeights(pipeline);
  for (const auto& stage : pipeline.stages) result.saved.push_back(stage->SavedBytes());
  result.measured = MeasuredCosts(trace);
  return result;
}

// Expects the same bits.
inline void ExpectEqual(const TrainedModel& one, const TrainedModel& other) {
  EXPECT_EQ(one.losses, other.losses);
  ASSERT_EQ(one.parameters.size(), other.parameters.size());
  for (const auto& [name, value] : one.parameters) {
    EXPECT_TRUE(at::equal(value, other.parameters.at(name))) << name;
  }
}

}  // namespace penstock
