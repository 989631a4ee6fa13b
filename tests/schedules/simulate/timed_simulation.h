// Schedules after their simulation.
#pragma once

#include "simulate/simulate.h"
#include "tests/results.h"

namespace penstock {

struct TimedSimulation {
  SimulationResult result;
  Timeline timeline;
};

inline TimedSimulation SimulateWithTimes(const Schedule& schedule, const Costs& costs) {
  TimedSimulation run;
  run.result = ValueOf(Simulate(schedule, costs, {.timeline = &run.timeline}));
  return run;
}
inline Timeline TimelineOf(const Schedule& schedule, const Costs& costs) {
  return SimulateWithTimes(schedule, costs).timeline;
}

}  // namespace penstock
