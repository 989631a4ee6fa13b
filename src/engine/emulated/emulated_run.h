// Executes simulated schedules on emulated devices, to compare measured with predicted figures.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scenario/price/simulated.h"

namespace penstock {

inline constexpr std::string_view kDefaultRunUnit = "5ms";
// For shorter actions, the time to wake up a thread is not negligible.
inline constexpr double kShortestAction = 1e-3;

struct EmulatedRun {
  SimulationResult measured;  // times in units of cost, memory and messages as predicted
  double unit = 0;            // in seconds, like all below
  double makespan = 0;
  double cpu = 0;       // CPU time of the process during the run
  double shortest = 0;  // shortest action that takes time
  double lateness = 0;  // the latest wake-up of a thread
  std::string drift;    // which action and which rank took longer than planned
  std::string busy;     // as BusyMachine() before the runs

  bool too_short() const { return shortest > 0 && shortest < kShortestAction; }
};

// Reads the real time of one unit of cost ("200us") in seconds. Errors: kInvalidArgument about
// `unit`.
Result<double> ParseRunUnit(std::string_view text);

// Refuses costs with several links, which emulated ranks and dumps of Primus's do not have. Errors:
// kInvalidArgument about `parameter`.
Status RequireOneLatency(std::string_view parameter, const Simulated& simulated);

// Runs one schedule after the other: one step, or all steps of a schedule that has several. Without
// a unit, one of cost takes kDefaultRunUnit, or a second where costs are in seconds. Errors:
// kInvalidArgument about `unit` or `run`; otherwise as RunRanks, with the schedule in front.
Result<std::vector<EmulatedRun>> RunEmulated(const std::vector<Simulated>& all,
                                             std::optional<std::string_view> unit,
                                             const std::atomic<bool>& cancel);

}  // namespace penstock
