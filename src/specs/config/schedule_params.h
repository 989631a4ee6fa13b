// The parameters that a configuration passes to a schedule's algorithm.
#pragma once

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/catalog.h"

namespace penstock {

// Returns the configured parameters of the algorithm. Errors: kInvalidArgument, naming the key.
Result<ScheduleParams> ParamsOf(const PipelineConfig& pipeline);

// Returns the key that the schedule comes from: pipeline.schedule or pipeline.csv.
const char* ScheduleKey(const PipelineConfig& pipeline);

// Rejects keys that have no effect on a schedule in a file.
Status RefuseForCsv(const PipelineConfig& pipeline);

}  // namespace penstock
