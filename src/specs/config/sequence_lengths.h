// Tokens of the slices and microbatches of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns the tokens of each slice of a sequence: as configured, else equal. Requires:
// ChooseSchedule has filled in the configuration.
std::vector<std::int64_t> SliceLengths(const TrainConfig& config);

// Returns the tokens per sample of each microbatch of a step if they differ (data.lengths), else
// nothing. Requires: ChooseSchedule has filled in the configuration.
std::vector<std::int64_t> MicrobatchLengths(const TrainConfig& config);
// Returns the tokens of a step's batch, with padding. Requires: likewise.
std::int64_t TokensPerStep(const TrainConfig& config);

// Returns the tokens that a rank has of a sample or slice with this many (parallel.context).
std::int64_t TokensOfRank(const TrainConfig& config, std::int64_t tokens);

// Whether the model also predicts the token after the next one, from a whole sample.
bool HasPredictor(const TrainConfig& config);

// Check the configured lengths, once ChooseSchedule has filled in the rest. Errors:
// kInvalidArgument.
Status CheckSlices(const TrainConfig& config);
Status CheckLengths(const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
