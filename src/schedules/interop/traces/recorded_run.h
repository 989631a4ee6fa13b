// A run of a pipeline that another system recorded as Chrome traces, read as a schedule with
// measured times: a file with all ranks, or a folder with a file per rank (trace_file.h). A rule
// says which events are actions (trace_rule.h). Penstock's own traces, and the folders of its
// training runs, are read as well.
//
// Units: seconds, or for an own trace the unit of its costs; memory in activations of one rank and
// microbatch. Errors: kNotFound for a missing file, kInvalidArgument for unexpected contents.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct RecordedRun {
  Schedule schedule;            // every stage runs every microbatch once, but it is not validated
  Timeline timeline;            // from 0
  std::string time_unit = "s";  // or empty: the unit of costs
  // Which step was read, and by how much clocks were set; empty for Penstock's own traces.
  std::string reading = {};
  // The medians of each stage's times. Half of a full backward counts as W. Transfers take no time.
  Costs costs;
};

struct RecordedRunOptions {
  std::string rule;                 // a file; empty: the first built-in rule that matches
  std::optional<int> iteration;     // the step; default: the last complete one
  std::optional<int> chunks;        // stages per rank where events do not name stages; default 1
  std::optional<int> microbatches;  // of a step where events name neither them nor steps
};

// Whether the path is a file that ends like a trace, or a folder with such files.
bool IsRecordedRun(const std::string& path);

// Returns the error for a folder of which IsRecordedRun is false: which subfolders hold traces, if
// some do.
Error NoTracesIn(const std::string& folder);

Result<RecordedRun> LoadRecordedRun(const std::string& path, const RecordedRunOptions& options);

}  // namespace penstock
