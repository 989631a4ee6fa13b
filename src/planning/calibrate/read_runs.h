// Tables of measured runs as scenarios.
#pragma once

#include <string>

#include "base/result.h"
#include "calibrate/measured_run.h"

namespace penstock {

// Reads a table of runs, whose columns are names of scenario fields and what was measured
// (docs/calibrate.md). A row that cannot be read is refused with the column that prevents it.
// Errors: those of ReadCsvTable; kInvalidArgument with the first line for other columns. For tables
// of other systems that bench/run tables converts, it says so.
Result<MeasuredRuns> ReadMeasuredRuns(const std::string& path);

}  // namespace penstock
