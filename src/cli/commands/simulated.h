// What simulate, show and report share: the chosen schedules, run through the simulator.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/result.h"
#include "cli/options/schedule_options.h"
#include "report/table.h"
#include "schedule/timeline.h"
#include "simulate/simulate.h"

namespace penstock {

struct Simulated {
  ChosenSchedule chosen;
  SimulationResult result;
  Timeline timeline;  // empty where it was not asked for

  // Whether it was simulated: a listing of closed forms leaves out what is large.
  bool ran() const { return !result.ranks.empty(); }
};

// Whether a rank needs more than the memory limit; false without one.
bool AboveLimit(const Simulated& simulated);

// Chooses (simulate_config.h) and simulates every schedule, with its timeline.
Result<std::vector<Simulated>> SimulateChosen(ScheduleOptions& options);
Result<Simulated> SimulateOne(ChosenSchedule chosen, bool with_timeline);
Result<std::vector<Simulated>> SimulateEach(std::vector<ChosenSchedule> chosen, bool with_timeline);

// What closed forms say of a schedule, in its units; nothing for a file or a changed schedule.
ClosedForm ClosedFormOf(const ChosenSchedule& chosen);

// Bytes that a microbatch moves between ranks where the whole run sends `messages`, both ways;
// empty where nobody knows how large one is.
std::optional<double> BytesAMicrobatch(const ChosenSchedule& chosen, double messages);

// The same figures simulated and in closed form, under the names of --json; null where there is
// none.
nlohmann::ordered_json FiguresJson(const Simulated& simulated);
nlohmann::ordered_json ClosedFormJson(const ChosenSchedule& chosen);

// One object of `simulate --json`; `with_steps` adds time_steps: for each rank, every action with
// its start and end.
nlohmann::ordered_json ToJson(const Simulated& simulated, bool with_steps);

// One row a schedule, with its closed forms in a row below where there are any.
Table ComparisonTable(const std::vector<Simulated>& all);

// The line below a table of figures: what they are in.
std::string UnitsText(const std::vector<Simulated>& all);

// "4 ranks, 2 chunks, 8 microbatches"
std::string ShapeText(const Schedule& schedule);

}  // namespace penstock
