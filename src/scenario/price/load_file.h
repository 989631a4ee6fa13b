// Schedules in files: CSVs, recorded traces and folders of Primus's dumps.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "scenario/scenario.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct LoadedFile {
  Schedule schedule;
  std::optional<Costs> costs;  // of a dump or trace, unless the scenario has costs
  std::string memory_unit = {};
  std::optional<Timeline> measured = {};
  std::string time_unit = {};
  std::string reading = {};  // of a trace: which step was read (interop/traces/recorded_run.h)
};

// Reads a file with the fields for it, without validating the schedule. Errors: kInvalidArgument if
// the file has another size than the scenario says, and the readers' errors.
Result<LoadedFile> LoadFile(const Scenario& scenario, const std::string& path);

}  // namespace penstock
