// What the tests of passes ask of a schedule.
#pragma once

#include <gtest/gtest.h>

#include "simulate/simulate.h"
#include "tests/schedules/schedule/random_catalog.h"

namespace penstock::testing {

inline SimulationResult Price(const Schedule& schedule, const Costs& costs) {
  auto result = Simulate(schedule, costs);
  if (!result) ADD_FAILURE() << result.error().line() << " on " << Name(schedule);
  return result ? *result : SimulationResult{};
}

inline std::size_t CountPairs(const Schedule& schedule) {
  std::size_t pairs = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) pairs += action.is_pair() ? 1 : 0;
  }
  return pairs;
}

}  // namespace penstock::testing
