// Shared by the commands that price schedules: the chosen schedules with their simulated figures.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cli/options/schedule_options.h"
#include "explain/explanation.h"
#include "schedule/timeline.h"
#include "simulate/memory/memory_by_kind.h"
#include "simulate/runs/monte_carlo.h"
#include "simulate/simulate.h"

namespace penstock {

struct Simulated {
  ChosenSchedule chosen;
  SimulationResult result;
  Timeline timeline;                  // empty unless requested
  std::vector<SentMessage> messages;  // the same
  // The result with every overlapped pair at F + B. Set where the schedule has such pairs
  // and `result` prices them at the longer of the two: real hardware lies between these bounds.
  std::optional<SimulationResult> overlap_sum;

  // The figures of runs with jitter, if asked for; `result` and the timeline are without it.
  std::optional<MonteCarloResult> jittered;

  // The time of a step when steps follow each other, if asked for (steady_state.h).
  std::optional<double> steady_step;

  // The memory of each rank by kind, if asked for.
  std::vector<RankMemory> memory;

  // Whether some rank needs more than the memory limit, or with a model more than its device has.
  bool above_limit = false;

  // Whether `result` and the timeline are measured, instead of simulated. They are those of the
  // schedule before it, and messages are unknown.
  bool measured = false;

  // False where only closed forms are listed because the schedule is too large to simulate quickly.
  bool ran() const { return !result.ranks.empty(); }
};

// Returns all schedules, as show, diff and report draw them: one with measured times is followed by
// a copy that has them. Requires: as ExplanationOf.
std::vector<Simulated> WithMeasured(std::vector<Simulated> all);

// Why the schedule takes as long as it does. If it heeds a memory limit, forwards that do not fit
// are a cause. Requires: it was simulated with its timeline.
Explanation ExplanationOf(const Simulated& simulated);

// Chooses the schedules (simulate_config.h) and simulates each of them with its timeline.
Result<std::vector<Simulated>> SimulateChosen(ScheduleOptions& options);
// Simulates a schedule that is generated already.
Result<Simulated> SimulateOne(ChosenSchedule chosen, bool with_timeline);
Result<std::vector<Simulated>> SimulateEach(std::vector<ChosenSchedule> chosen, bool with_timeline);

// The schedule's closed forms in its own units. Empty for a file and for a schedule that a pass has
// changed.
ClosedForm ClosedFormOf(const ChosenSchedule& chosen);

// Messages per microbatch in both directions, in units of a whole microbatch's tensor: a slice's
// message counts as its share.
double WholeMessages(const ChosenSchedule& chosen, double messages);
// Bytes per microbatch that move between ranks in both directions, for a schedule that sends
// `messages` in all. Empty where the size of a message is unknown.
std::optional<double> BytesAMicrobatch(const ChosenSchedule& chosen, double messages);

// The figures under the keys of --json, simulated and in closed form. A figure without a
// closed form is null.
nlohmann::ordered_json FiguresJson(const Simulated& simulated);
nlohmann::ordered_json ClosedFormJson(const ChosenSchedule& chosen);

// Adds "time_unit" and "memory_unit" to an object with such figures.
void AddUnits(const ChosenSchedule& chosen, nlohmann::ordered_json& object);

// One object of `simulate --json`. `with_steps` adds `time_steps`: every action of each rank with
// its start and end.
nlohmann::ordered_json ToJson(const Simulated& simulated, bool with_steps);
// The array of them.
nlohmann::ordered_json SchedulesJson(const std::vector<Simulated>& all, bool with_steps);

// "4 ranks, 2 chunks, 8 microbatches"
std::string ShapeText(const Schedule& schedule);

}  // namespace penstock
