// Random schedules of the catalog, for properties that hold for all of them.
#pragma once

#include <random>
#include <vector>

#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {

// Returns `count` random schedules of each algorithm.
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
    EXPECT_EQ(left, 0) << algorithm.name << " accepts hardly any of the sizes drawn";
  }
  return schedules;
}

// Returns a description of the schedule for failure messages.
inline std::string Name(const Schedule& schedule) {
  return fmt::format("{} p={} stages={} m={} slices={} steps={}", schedule.algorithm,
                     schedule.ranks(), schedule.stages(), schedule.microbatches, schedule.slices,
                     schedule.steps);
}

}  // namespace penstock::testing
