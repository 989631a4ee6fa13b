// Data parallelism: replicas of a whole pipeline, each on ranks of its own.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns the schedule of `data` replicas of the pipeline. Each runs the lanes of `schedule` with
// microbatches of its own, so the result has `data` times the ranks, the chains and the
// microbatches. Replica d has the ranks from d * schedule.ranks() on, and its chains follow those
// of replica d-1. Errors: kInvalidArgument if `data` is below 1, if the schedule does not flush, or
// if there are too many stages.
Result<Schedule> AddDataParallelism(const Schedule& schedule, int data);

}  // namespace penstock
