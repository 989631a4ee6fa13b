// What a run keeps of each parameter.
#pragma once

#include "config/train_config.h"
#include "model_spec/state_bytes.h"

namespace penstock {

enum class UpdatedBy { kAdamW, kMuon };

// Returns the bytes of a parameter that this optimizer updates, with its moving average.
StateFormat StateFormatOf(const TrainConfig& config, UpdatedBy optimizer = UpdatedBy::kAdamW);

}  // namespace penstock
