// What a configuration asks of a schedule's algorithm. Private to train/setup. No torch here.
#pragma once

#include "base/result.h"
#include "schedule/catalog.h"
#include "train/config.h"

namespace penstock {

// The algorithm's parameters, as the configuration gives them. Errors name the key.
Result<ScheduleParams> ParamsOf(const PipelineConfig& pipeline);

// Refuses keys that a schedule in a file does not read.
Status RefuseForCsv(const PipelineConfig& pipeline);

// Returns an algorithm's error with the configuration's key in place of the parameter's name.
Error NameKeys(Error error);

}  // namespace penstock
