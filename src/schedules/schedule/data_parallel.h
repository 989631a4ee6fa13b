// Data parallelism: replicas of a whole pipeline, each on ranks of its own.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// The position of a rank among `data` replicas of a pipeline of `pipeline` ranks. Replica d has the
// ranks d * pipeline to (d + 1) * pipeline - 1.
struct Mesh {
  int pipeline = 1;
  int data = 1;

  int ranks() const { return pipeline * data; }
  int pipeline_index(int rank) const { return rank % pipeline; }
  int data_index(int rank) const { return rank / pipeline; }

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// Returns the schedule of `data` replicas of the pipeline. Each runs the lanes of `schedule` with
// microbatches of its own, so the result has `data` times the ranks, the chains and the
// microbatches. The chains of replica 0 come first. Errors: kInvalidArgument if `data` is below 1,
// if the schedule does not flush, or if there are too many stages.
Result<Schedule> AddDataParallelism(const Schedule& schedule, int data);

}  // namespace penstock
