// simulate --run: executes a simulated schedule on emulated devices and compares measured with
// predicted figures.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/figures/simulated_json.h"
#include "report/table.h"

namespace penstock {

struct EmulatedRun {
  SimulationResult measured;  // times in units of cost, memory and messages as predicted
  double unit = 0;            // in seconds, like all below
  double makespan = 0;
  double cpu = 0;       // CPU time of the process during the run
  double shortest = 0;  // shortest action, except those of no time
  double lateness = 0;  // the latest wake-up of a thread
  std::string drift;    // which action and which rank took longer than planned
  std::string busy;     // as BusyMachine() before the runs
};

// The options --run and --unit.
class EmulatedRunOptions {
 public:
  void Define(CLI::App& app);
  bool asked() const { return asked_; }
  // Refuses --unit without --run, and units that UnitSeconds refuses.
  Status Check() const;

  // Runs one schedule after the other: one step, or all steps of a schedule that has several.
  // Ctrl-C ends it. Errors: kInvalidArgument for a bad unit; otherwise as RunRanks, naming the
  // schedule.
  Result<std::vector<EmulatedRun>> Run(const std::vector<Simulated>& all) const;

 private:
  Result<double> UnitSeconds() const;

  bool asked_ = false;
  std::optional<std::string> unit_;
};

nlohmann::ordered_json ToJson(const Simulated& simulated, const EmulatedRun& run);
// Predicted and measured figures, one row per schedule, and the remarks printed below the table.
Table EmulatedTable(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);
std::string EmulatedText(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);

}  // namespace penstock
