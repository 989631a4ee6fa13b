// StepRunner: runs the training steps of a run in one or several blocks. It uses several if the run
// has a time limit, or if the pipeline must drain in between.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "runtime/measure/trace.h"
#include "schedule/schedule.h"
#include "train/evaluation/best_loss.h"
#include "train/evaluation/held_out.h"
#include "train/run/checkpoint_writer.h"
#include "train/run/pipeline.h"
#include "train/run/run_context.h"
#include "train/run/step_log.h"

namespace penstock {

class StepRunner {
 public:
  // `best` is the run's best so far. The other arguments must outlive the runner.
  StepRunner(const RunContext& run, Pipeline& pipeline, StepLog& log, CheckpointWriter& checkpoints,
             HeldOutLoss& held_out, BestLoss best);

  // Runs the steps from `done` on, then writes the last checkpoint. On a stop request, ends after
  // the current step, or where the pipeline next drains if the schedule does not flush, and writes
  // a checkpoint even if the run writes no others.
  Status Run(std::int64_t done);

  double seconds() const { return seconds_; }  // of training, including earlier processes
  double steps_per_second() const { return steps_per_second_; }
  std::int64_t steps() const { return done_; }
  bool ended_early() const { return done_ < total_; }
  const BestLoss& best() const { return best_; }
  Trace* trace() const { return trace_.get(); }                // null if no step was run
  std::int64_t first_traced() const { return first_traced_; }  // step of the trace's first round

 private:
  std::int64_t BlockSize(std::int64_t done) const;
  Status Estimate(std::int64_t done);
  Result<bool> Evaluate();
  Status EvaluateNow();
  Status RunSteps();
  Status RunBlock(std::int64_t first, std::int64_t steps);
  Result<const Schedule*> BlockSchedule(std::int64_t steps);
  void AfterStep(int mesh_rank, std::int64_t step);
  void LogStep(int rank, std::int64_t step);
  std::vector<StageNorm> NormsOf(int rank) const;
  void WriteDrainedCheckpoint(std::int64_t done);

  const RunContext& run_;
  Pipeline& pipeline_;
  StepLog& log_;
  CheckpointWriter& checkpoints_;
  HeldOutLoss& held_out_;
  const bool drains_;  // the pipeline, for each checkpoint
  int last_rank_;
  std::int64_t total_;  // steps of the run as currently estimated
  std::int64_t done_ = 0;
  BestLoss best_;  // the leader's decides
  double seconds_ = 0;
  double steps_per_second_ = 0;
  std::vector<std::unique_ptr<Schedule>>
      schedules_;  // of blocks whose length differs from the run's schedule
  std::unique_ptr<Trace> trace_;
  std::int64_t first_traced_ = 0;
};

}  // namespace penstock
