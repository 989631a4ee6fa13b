// The options of a run's stages. Private to train/.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "model/model.h"
#include "schedule/schedule.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Sets which activations microbatches keep.
Status SetRecompute(const TrainConfig& train, CompileOptions& options);

// Adds to options of all stages what the schedule and its replicas determine for one of them.
// StageBuilder adds what belongs to a process.
Result<TorchStageOptions> ScheduledOptions(const Schedule& schedule, const ParallelConfig& parallel,
                                           int stage, TorchStageOptions options);

// Returns what a configuration determines, too. `shared` are SharedParameters of the model.
Result<TorchStageOptions> OptionsOfStage(const TrainConfig& config, const Schedule& schedule,
                                         const std::vector<SharedParameter>& shared, int stage);

}  // namespace penstock
