// Vocabulary parallelism of a run (parallel.shard_vocabulary): its schedule, and the rows of each
// rank.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "config/train_config.h"
#include "schedule/schedule.h"

namespace penstock {

// Rows of the embedding and the head.
struct RowRange {
  std::int64_t begin = 0, end = 0;

  std::int64_t count() const { return end - begin; }
};
// Returns the rows of one rank. The counts of two ranks differ by at most 1.
RowRange RowsOfRank(std::int64_t vocabulary, int ranks, int rank);

// Adds the passes of a sharded vocabulary if the configuration asks for them. If the schedule has
// them, asks for them in the configuration. Errors: kInvalidArgument for a schedule, a model or an
// option that cannot be combined with them.
Result<Schedule> ShardVocabulary(Schedule schedule, TrainConfig& config);

}  // namespace penstock
