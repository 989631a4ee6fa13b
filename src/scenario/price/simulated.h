// The figures of priced schedules.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "explain/explanation.h"
#include "scenario/price/build.h"
#include "scenario/price/step_estimate.h"
#include "schedule/timeline.h"
#include "simulate/memory/memory_by_kind.h"
#include "simulate/runs/monte_carlo.h"
#include "simulate/simulate.h"

namespace penstock {

struct Simulated {
  PricedSchedule chosen;
  SimulationResult result;
  Timeline timeline;                  // empty unless requested
  std::vector<SentMessage> messages;  // the same
  // The figures of the schedule with every overlapped pair at F + B. Set where the schedule has
  // such pairs and `result` prices them at the longer of the two: real hardware lies between these
  // bounds.
  std::optional<SimulationResult> overlap_sum;

  // The figures of runs with jitter, if asked for; `result` and the timeline are without it.
  std::optional<MonteCarloResult> jittered;

  // The time of a step when steps follow each other, if asked for (steady_state.h): of
  // `chosen.repeat` steps in a row, or of the steps of a schedule without a flush.
  std::optional<double> steady_step;

  // With a model: the time of a step with all that follows the pipeline, and the bytes of each
  // rank.
  std::optional<StepEstimate> step;

  // The memory of each rank by kind, if asked for.
  std::vector<RankMemory> memory;

  // Whether some rank needs more than the memory limit, or with a model more than its device has.
  bool above_limit = false;

  // Whether `result` and the timeline are measured, instead of simulated. They belong to the
  // schedule before this one, if WithMeasured made it, and messages are unknown.
  bool measured = false;

  // False where only closed forms are listed because the schedule is too large to simulate quickly.
  bool ran() const { return !result.ranks.empty(); }
};

// Returns the label of the measured times of a schedule.
std::string MeasuredLabel(const PricedSchedule& chosen);

// Returns all schedules; one with measured times is followed by a copy that has them. Requires: as
// ExplanationOf.
std::vector<Simulated> WithMeasured(std::vector<Simulated> all);

// Says why the schedule takes as long as it does. If it heeds a memory limit, forwards that do not
// fit are a cause. Requires: it was simulated with its timeline.
Explanation ExplanationOf(const Simulated& simulated);

// Simulates schedules. Errors: kInvalidArgument about `repeat`.
Result<Simulated> SimulateOne(PricedSchedule chosen, bool with_timeline);
Result<std::vector<Simulated>> SimulateEach(std::vector<PricedSchedule> chosen, bool with_timeline);

// Sets the memory of each rank by kind. Requires: each schedule was simulated with its timeline.
void AddMemory(std::vector<Simulated>& all);
// Whether memory by kind can count messages: in bytes, as their sizes are, and simulated, since
// measured messages are unknown.
bool CountsMessages(const Simulated& simulated);

// Returns the schedule's closed forms in its own units. Empty for a file and for a schedule that a
// pass has changed.
ClosedForm ClosedFormOf(const PricedSchedule& chosen);

// Returns the messages per microbatch in both directions, in units of a whole microbatch's tensor:
// a slice's message counts as its share.
double WholeMessages(const PricedSchedule& chosen, double messages);
// Returns the bytes per microbatch that move between ranks in both directions, for a schedule that
// sends `messages` in all. Empty where the size of a message is unknown.
std::optional<double> BytesAMicrobatch(const PricedSchedule& chosen, double messages);

}  // namespace penstock
