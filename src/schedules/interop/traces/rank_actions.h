// The actions that a trace's events stand for, by rank. Private to interop/traces.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "interop/traces/trace_file.h"
#include "interop/traces/trace_rule.h"
#include "schedule/action.h"
#include "schedule/timeline.h"

namespace penstock {

struct RecordedAction {
  Action action;  // its stage and microbatch count only if they are known
  bool has_stage = false, has_microbatch = false;
  int chunk = -1;  // among the rank's stages; -1 if unknown
  Span span;       // in microseconds
  int step = 0;    // of the training run
  std::string name;
};

struct RecordedStep {
  Span span;
  int number = 0;
};

struct RankActions {
  std::string source;                   // for errors: "rank0.json", "process 12"
  std::vector<RecordedAction> actions;  // by start
  std::vector<RecordedStep> steps;      // by start; empty if the trace has none
};

// Returns the actions of every rank. Waits are no part of them. Refuses a trace in which the rule
// matches nothing, and events without times.
Result<std::vector<RankActions>> MatchEvents(const std::vector<TraceFile>& files,
                                             const TraceRule& rule);

// Whether the rule matches an event of some file.
bool Matches(const std::vector<TraceFile>& files, const TraceRule& rule);

}  // namespace penstock
