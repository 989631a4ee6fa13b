// What failures cost a long job, and how often it should write a checkpoint.
//
// Failures come at random times, independent of each other. A failure loses what was computed since
// the last checkpoint. Source: Daly, A higher order estimate of the optimum checkpoint interval for
// restart dumps, 2006, equation 20.
#pragma once

#include <cstdint>

namespace penstock {

// In seconds.
struct FailureTimes {
  double between = 0;     // mean time between two failures of the whole job
  double restart = 0;     // from a failure until steps run again
  double checkpoint = 0;  // that writing one stops training
};

// Returns the part of the time that trains, 0 to 1, in the mean, if the job writes a checkpoint
// after every `interval` seconds of training. Requires: between > 0, interval > 0.
double TrainingPart(const FailureTimes& times, double interval);

struct CheckpointInterval {
  std::int64_t steps = 1;
  double training_part = 1;  // of the time
};

// Returns the number of steps between two checkpoints with the largest part of the time that
// trains. Requires: between > 0, step_time > 0.
CheckpointInterval BestCheckpointInterval(const FailureTimes& times, double step_time);

}  // namespace penstock
