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

// The error of an algorithm, which names options, with the configuration's keys in their place.
Error NameKeys(Error error);

}  // namespace penstock
