// StepRunner: the training steps of one run, in one block or, with a time limit, in several.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "runtime/hosts/hosted_ranks.h"
#include "runtime/measure/trace.h"
#include "schedule/schedule.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/config.h"
#include "train/run/pipeline.h"
#include "train/run/step_log.h"
#include "train/train.h"

namespace penstock {

// What the steps of a run are made with; all of it outlives the runner.
struct RunParts {
  const TrainConfig& config;
  const TrainOptions& options;
  const Schedule& schedule;
  const HostedRanks& ranks;
  Collectives& hosts;
  int threads;  // of each rank
  Pipeline& pipeline;
  StepLog& log;
  CheckpointWriter& checkpoints;
};

class StepRunner {
 public:
  explicit StepRunner(const RunParts& parts);

  // From step `done` on; then writes the last checkpoint. Ends early, with a checkpoint even where
  // the run makes none, when a stop is requested: after the step at hand, or where the pipeline is
  // next empty if the schedule does not flush.
  Status Run(std::int64_t done);

  double seconds() const { return seconds_; }  // of training, earlier processes' too
  double steps_per_second() const { return steps_per_second_; }
  std::int64_t steps() const { return done_; }
  bool ended_early() const { return done_ < total_; }
  Trace* trace() const { return trace_.get(); }                // null where no step was run
  std::int64_t first_traced() const { return first_traced_; }  // step of the trace's first round

 private:
  std::int64_t BlockSize(std::int64_t done) const;
  Status Estimate(std::int64_t done);
  Result<bool> StopRequested();
  Status RunSteps();
  Status RunBlock(std::int64_t first, std::int64_t steps);
  Result<const Schedule*> BlockSchedule(std::int64_t steps);
  void AfterStep(int rank, std::int64_t step);
  std::vector<StageNorm> NormsOf(int rank) const;

  void CheckpointEmpty(std::int64_t done);

  const RunParts parts_;
  const bool empties_;  // for checkpoints
  int last_rank_;
  std::int64_t total_;  // steps, as far as is known
  std::int64_t done_ = 0;
  double seconds_ = 0;
  double steps_per_second_ = 0;
  std::vector<std::unique_ptr<Schedule>> schedules_;  // of blocks, other than the run's
  std::unique_ptr<Trace> trace_;
  std::int64_t first_traced_ = 0;
};

}  // namespace penstock
