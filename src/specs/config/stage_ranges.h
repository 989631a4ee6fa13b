// The layers of the stages of a run.
#pragma once

#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "model_spec/layer_range.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns the layers of each of `stages` stages of the configured model.
Result<std::vector<LayerRange>> StageRanges(const TrainConfig& config, int stages);

// Records in the schedule which stages share parameters of the configured model. ChooseSchedule
// calls it. Errors: kInvalidArgument if stages that share a parameter step at different times.
Status SetShared(const TrainConfig& config, Schedule& schedule);

}  // namespace penstock
