// Tables of measured runs as scenarios.
#pragma once

#include <string>

#include "base/result.h"
#include "calibrate/measured_run.h"

namespace penstock {

// Reads a table of runs. Its columns are names of scenario fields with `step_time` or `peak_bytes`
// (formats/own_columns.cpp), or those of a format that its header tells (formats/format.h). A row
// that the fields cannot express is refused with the column that prevents it. Errors: those of
// ReadCsvTable; kInvalidArgument with the first line for columns that no format has.
Result<MeasuredRuns> ReadMeasuredRuns(const std::string& path);

}  // namespace penstock
