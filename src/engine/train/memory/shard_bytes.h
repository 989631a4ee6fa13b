// The memory of weights, gradients and optimizer state, predicted from the schedule.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/schedule.h"

namespace penstock {

// The most bytes that a rank holds at a time.
struct RankBytes {
  std::int64_t weights = 0;    // with masters and older versions
  std::int64_t gradients = 0;  // without copies in messages
  std::int64_t optimizer = 0;

  friend bool operator==(const RankBytes&, const RankBytes&) = default;
};

// Returns the bytes by rank, exactly as a run has them (RankShards), because weights and gradients
// are allocated and freed at places of the schedule: weights that UNSHARD gathers until RESHARD,
// and gradients that REDUCE_GRAD reduces from the first weight gradient until the next REDUCE_GRAD
// of the rank or the STEP. Requires: as BuildPipeline.
Result<std::vector<RankBytes>> PredictRankBytes(const TrainConfig& config,
                                                const Schedule& schedule);

}  // namespace penstock
