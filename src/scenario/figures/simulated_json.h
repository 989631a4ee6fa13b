// The figures of simulated schedules as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "scenario/price/simulated.h"

namespace penstock {

// Return the simulated figures and those in closed form under the same keys. A figure without a
// closed form is null.
nlohmann::ordered_json FiguresJson(const Simulated& simulated);
nlohmann::ordered_json ClosedFormJson(const PricedSchedule& chosen);

// Adds "time_unit" and "memory_unit" to an object with such figures.
void AddUnits(const PricedSchedule& chosen, nlohmann::ordered_json& object);

// One object of `simulate --json`. `with_steps` adds `time_steps`: every action of each rank with
// its start and end.
nlohmann::ordered_json ToJson(const Simulated& simulated, bool with_steps);
// Returns the array of all of them.
nlohmann::ordered_json SchedulesJson(const std::vector<Simulated>& all, bool with_steps);

// "4 ranks, 2 chunks, 8 microbatches"
std::string ShapeText(const Schedule& schedule);

}  // namespace penstock
