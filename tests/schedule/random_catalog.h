// Random schedules of the catalog, for properties that hold for all of them.
#pragma once

#include <random>
#include <vector>

#include "make_schedules.h"

namespace penstock::testing {

inline int Draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Parameters that the algorithm may or may not take: small, so that many can be tried.
inline ScheduleParams DrawParams(const Algorithm& algorithm, std::mt19937& random) {
  ScheduleParams params;
  params.ranks = Draw(random, 1, 6);
  params.chunks = Draw(random, 0, 1) == 0 ? 0 : Draw(random, 1, 3);
  params.microbatches = Draw(random, 1, 14);
  if (algorithm.knobs.cuts) params.cuts = Draw(random, 1, 3);
  if (algorithm.knobs.steps) params.steps = Draw(random, 1, 3);
  if (algorithm.knobs.split) params.split = Draw(random, 0, 1) == 1;
  return params;
}

// `count` schedules of each algorithm.
inline std::vector<Schedule> DrawCatalog(int count, std::mt19937& random) {
  std::vector<Schedule> schedules;
  for (const Algorithm& algorithm : Catalog()) {
    int left = count;
    for (int attempt = 0; attempt < 100 * count && left > 0; ++attempt) {
      auto schedule = Generate(algorithm.name, DrawParams(algorithm, random));
      if (!schedule) continue;
      schedules.push_back(std::move(*schedule));
      --left;
    }
    EXPECT_EQ(left, 0) << algorithm.name << " takes hardly any of the sizes drawn";
  }
  return schedules;
}

// What a schedule is, for a failure's message.
inline std::string Name(const Schedule& schedule) {
  return fmt::format("{} p={} stages={} m={} cuts={} steps={}", schedule.algorithm,
                     schedule.ranks(), schedule.stages(), schedule.microbatches, schedule.cuts,
                     schedule.steps);
}

}  // namespace penstock::testing
