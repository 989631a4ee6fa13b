// The options of a run's stages. Private to train/.
#pragma once

#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "schedule/schedule.h"
#include "train/config.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Returns what the configuration and the schedule determine. The caller adds what belongs to a
// process: modules, programs, groups, pools and hooks. `shared` are SharedParameters of the model.
Result<TorchStageOptions> OptionsOfStage(const TrainConfig& config, const Schedule& schedule,
                                         const std::vector<SharedParameter>& shared, int stage);

}  // namespace penstock
