// Training runs whose ranks several threads divide.
#pragma once

#include <fmt/ranges.h>

#include "tests/engine/train/run/divided_model.h"
#include "tests/engine/train/run/processes_run.h"

namespace penstock {

inline void RunOnTwoRanks(TrainConfig& config, const std::string& schedule) {
  config.pipeline.schedule = schedule;
  config.pipeline.ranks = 2;
  const bool has_chunks = schedule.ends_with("v") || schedule == "interleaved";
  config.pipeline.stages = has_chunks ? 4 : 2;
}

inline void ExpectSameWithRecomputeAndInBf16(const TrainedModel& expected, TrainConfig config) {
  config.pipeline.ranks = config.pipeline.stages = 2;
  config.recompute.hold = "least";
  config.pipeline.schedule = "zb-h1";
  config.optimizer.post_validation = true;
  ExpectEqualToRounding(expected, TrainWith(config));
  config.precision = "bf16";
  const TrainedModel rounded = TrainWith(config);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(rounded.losses[i], expected.losses[i], 0.02 * expected.losses[i]);
  }
}

class DividedRun : public ProcessesRun {
 protected:
  DividedRun() { base_.emplace_back("device=cpu"); }

  std::vector<StepMetric> Train(const std::string& name, std::vector<std::string> options) {
    options.push_back("name=" + name);
    EXPECT_EQ(RunWell(options, 1).front().steps, 5);
    return Metrics(name);
  }

  // Two ranks that `key` adds train what one rank does, with each of the options.
  void ExpectSameOnTwoRanks(const std::vector<std::vector<std::string>>& cases,
                            const std::string& key) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}", fmt::join(cases[i], " ")));
      const std::vector<std::string> options =
          With({"ranks=2", "stages=2", "dropout=0", "clip=0.5"}, cases[i]);
      const auto run = [&](int ranks) {
        return RunWell(With(options, {fmt::format("name=run{}-{}", i, ranks),
                                      fmt::format("{}={}", key, ranks)}),
                       1)
            .front();
      };
      const double rounding = cases[i].front() == "precision=bf16" ? 0.02 : 1e-4;
      const TrainSummary expected = run(1), divided = run(2);
      EXPECT_NEAR(divided.held_out_loss, expected.held_out_loss, rounding * expected.held_out_loss);
      EXPECT_EQ(Evaluate(Folder(fmt::format("run{}-2", i)))->held_out_loss, divided.held_out_loss);
      const auto one = Metrics(fmt::format("run{}-1", i)), two = Metrics(fmt::format("run{}-2", i));
      ASSERT_EQ(one.size(), two.size());
      for (std::size_t step = 0; step < one.size(); ++step) {
        EXPECT_NEAR(one[step].loss, two[step].loss, rounding * one[step].loss);
        EXPECT_NEAR(one[step].grad_norm, two[step].grad_norm, 10 * rounding * one[step].grad_norm);
      }
    }
  }
};

}  // namespace penstock
