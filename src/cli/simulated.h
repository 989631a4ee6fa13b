// What simulate, show and report share: the chosen schedules, run through the simulator.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "cli/schedule_options.h"
#include "report/table.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock {

struct Simulated {
  ChosenSchedule chosen;
  SimulationResult result;
  Timeline timeline;  // empty where it was not asked for
};

// Builds and simulates every schedule that the options choose.
Result<std::vector<Simulated>> SimulateChosen(const ScheduleOptions& options, bool with_timeline);
Result<std::vector<Simulated>> SimulateEach(std::vector<ChosenSchedule> chosen, bool with_timeline);

// One object of `simulate --json`; `with_steps` adds time_steps: for each rank, every action with
// its start and end.
nlohmann::ordered_json ToJson(const Simulated& simulated, bool with_steps);

// One row a schedule, closed forms beside simulated figures where there are any.
Table ComparisonTable(const std::vector<Simulated>& all);

// "4 ranks, 2 chunks, 8 microbatches"
std::string ShapeText(const Schedule& schedule);

}  // namespace penstock
