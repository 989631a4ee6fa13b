// Random valid schedules: any placement, any order without deadlock, B or I and W, pairs, slices.
#pragma once

#include <random>

#include "schedule/schedule.h"

namespace penstock {

using Random = std::mt19937;

inline int Uniform(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

struct RandomScheduleOptions {
  int max_ranks = 6;
  int max_stages_per_rank = 3;
  int max_microbatches = 6;
  bool pairs = true;
};

// Repeatedly appends a random ready action to the lane of its rank. The lanes cannot deadlock,
// because the order in which they were filled satisfies all dependencies.
Schedule RandomSchedule(Random& random, const RandomScheduleOptions& options = {});

// Stage s on rank s; all forwards, then all backwards.
Schedule SmallGpipe(int ranks, int microbatches);

}  // namespace penstock
