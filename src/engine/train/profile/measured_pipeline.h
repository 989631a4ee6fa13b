// MeasuredPipeline: a pipeline of a profile, with the medians of its runs. Private to
// train/profile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "train/data/sample_source.h"
#include "train/run/pipeline.h"

namespace penstock {

class MeasuredPipeline {
 public:
  // Builds the stages. `config` has the schedule and the layers of this pipeline, and each rank has
  // `threads` threads.
  static Result<std::unique_ptr<MeasuredPipeline>> Make(
      TrainConfig config, int threads, const std::shared_ptr<const SampleSource>& samples);

  // Runs some steps; the first is not measured. Requires: steps >= 2.
  Status Run(int steps);

  // Return the medians of all runs: of the stages' costs, and of what a step takes on the first
  // stage's rank outside its actions. Require: Run has succeeded.
  Costs MedianCosts() const;
  double MedianBetweenSteps() const;
  double message_bytes() const;

 private:
  MeasuredPipeline(TrainConfig config, Schedule schedule, int threads)
      : config_(std::move(config)),
        schedule_(std::move(schedule)),
        ranks_(schedule_.ranks()),
        threads_(threads) {}

  void SetStates(Costs& costs) const;
  void SetSteps(const std::vector<double>& by_rank, Costs& costs) const;

  TrainConfig config_;
  Schedule schedule_;
  LocalRanks ranks_;
  int threads_;
  Pipeline pipeline_;
  std::int64_t done_ = 0;              // steps
  std::vector<Costs> costs_;           // by run
  std::vector<double> between_steps_;  // by run
};

}  // namespace penstock
