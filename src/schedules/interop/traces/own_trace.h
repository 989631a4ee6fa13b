// Traces that Penstock wrote itself.
#pragma once

#include <string>

#include "base/result.h"
#include "interop/traces/one_step.h"
#include "interop/traces/trace_file.h"

namespace penstock {

// Traces that Penstock wrote itself (report/trace.cpp): `penstock report -o FILE.trace.json`, and
// trace.json of a training run. They contain their schedule, so no rule is needed.
struct OwnTrace {
  OneStep step;             // of the file's last run: measured, where it has a measured one
  std::string time_unit;    // "s", or empty for the unit of costs
  double microseconds = 1;  // in one unit
};

// Requires: the file has an own description. Refuses a file with several schedules, and events that
// its schedule does not have.
Result<OwnTrace> ReadOwnTrace(const TraceFile& file);

}  // namespace penstock
