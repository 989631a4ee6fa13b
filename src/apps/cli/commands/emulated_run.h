// simulate --run: executes a simulated schedule on emulated devices and compares measured with
// predicted figures.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "emulated/emulated_run.h"
#include "report/table.h"
#include "scenario/figures/simulated_json.h"

namespace penstock {

// The options --run and --unit.
class EmulatedRunOptions {
 public:
  void Define(CLI::App& app);
  bool asked() const { return asked_; }
  // Refuses a unit without a run, and units that ParseRunUnit refuses.
  Status Check() const;

  // As RunEmulated. Ctrl-C ends the run.
  Result<std::vector<EmulatedRun>> Run(const std::vector<Simulated>& all) const;

 private:
  bool asked_ = false;
  std::optional<std::string> unit_;
};

nlohmann::ordered_json ToJson(const Simulated& simulated, const EmulatedRun& run);
// Predicted and measured figures, one row per schedule, and the remarks printed below the table.
Table EmulatedTable(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);
std::string EmulatedText(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs);

}  // namespace penstock
