// simulate --run: a simulated schedule, run by the real executor on emulated devices, and its
// figures beside the predicted ones.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/commands/simulated.h"
#include "report/table.h"

namespace penstock {

struct EmulatedRun {
  SimulationResult measured;  // times in units of cost, memory and messages as predicted
  double unit = 0;            // all below in seconds
  double makespan = 0;
  double cpu = 0;       // of the process, meanwhile
  double shortest = 0;  // action that takes time
  double lateness = 0;  // the most that a thread woke up late
  std::string drift;    // which action and which rank took longer than planned
};

// The options --run and --unit.
class EmulatedRunOptions {
 public:
  void Define(CLI::App& app);
  bool asked() const { return asked_; }
  // Refuses --unit without --run, and what UnitSeconds refuses.
  Status Check() const;

  // Runs one step of each, or all batches that a schedule holds, one schedule after the other.
  // Ctrl-C ends it. Errors: kInvalidArgument for a bad unit; as RunRanks, naming the schedule.
  Result<std::vector<EmulatedRun>> Run(const std::vector<Simulated>& all) const;

 private:
  Result<double> UnitSeconds() const;

  bool asked_ = false;
  std::optional<std::string> unit_;
};

nlohmann::ordered_json ToJson(const Simulated& simulated, const EmulatedRun& run);
// Predicted beside measured, one row a schedule, and what has to be said of it in words.
Table EmulatedTable(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);
std::string EmulatedText(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);

}  // namespace penstock
