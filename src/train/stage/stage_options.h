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

// What the stages' programs recompute, as CompileOptions has it.
struct SavePolicy {
  std::int64_t save_budget = kSaveAll;
  std::int64_t save_budget_for_weight = kSaveAll;
  std::vector<ModuleKind> modules;
};
Result<SavePolicy> SavePolicyOf(const RecomputeConfig& config);

// Returns what the configuration and the schedule determine. The caller adds what belongs to a
// process: modules, programs, groups, pools and hooks. `shared` are SharedParameters of the model.
Result<TorchStageOptions> OptionsOfStage(const TrainConfig& config, const Schedule& schedule,
                                         const std::vector<SharedParameter>& shared, int stage);

}  // namespace penstock
