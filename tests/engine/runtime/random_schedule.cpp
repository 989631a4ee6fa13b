#include "tests/engine/runtime/random_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/schedules/simulate/random_schedule.h"

namespace penstock {

Schedule RandomSchedule(Random& random, const RandomScheduleOptions& options) {
  const int ranks = Uniform(random, 1, options.max_ranks);
  const int replicas = Uniform(random, 0, 3) == 0 ? 2 : 1;
  const int chain = Uniform(random, ranks, ranks * options.max_stages_per_rank);
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < chain * replicas; ++stage) {
    rank_of_stage.push_back(stage < ranks ? stage : Uniform(random, 0, ranks - 1));
  }
  std::shuffle(rank_of_stage.begin(), rank_of_stage.end(), random);
  return RandomSchedule({.placement = Placement::FromRanks(rank_of_stage, ranks, replicas).value(),
                         .microbatches = replicas * Uniform(random, 1, options.max_microbatches),
                         .slices = Uniform(random, 0, 3) == 0 ? Uniform(random, 2, 3) : 1,
                         .pairs = options.pairs},
                        random);
}

Schedule SmallGpipe(int ranks, int microbatches) {
  Schedule schedule;
  schedule.algorithm = "gpipe";
  schedule.placement = Placement::Linear(ranks);
  schedule.microbatches = microbatches;
  for (int rank = 0; rank < ranks; ++rank) {
    Lane lane;
    for (int microbatch = 0; microbatch < microbatches; ++microbatch)
      lane.push_back(Forward(rank, microbatch));
    for (int microbatch = microbatches - 1; microbatch >= 0; --microbatch)
      lane.push_back(Backward(rank, microbatch));
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

}  // namespace penstock
