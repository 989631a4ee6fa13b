// The pass table: converts the joint graph to the graphs that actions run.
#pragma once

#include <span>
#include <string_view>

#include "graph/passes/stage_graphs.h"

namespace penstock {

struct Pass {
  std::string_view name;
  Status (*run)(StageGraphs& graphs, const CompileOptions& options);
  bool must_run;         // cannot be disabled, because later passes depend on it
  bool for_cpus;         // calls libraries or generates code for CPUs; skipped on other devices
  std::string_view why;  // why it is at this position in the table
};

// Returns the graphs that passes have created so far, beginning with the joint graph.
std::vector<Graph*> AllGraphs(StageGraphs& graphs);
// Returns the passes in execution order.
std::span<const Pass> Passes();
// The name that CompileOptions::stop_after has for the captured graph, before any pass.
inline constexpr std::string_view kCapture = "capture";
// Runs all passes up to options.stop_after except the disabled ones, and verifies all graphs after
// each pass. Calls the thread's ScopedPassObserver. Errors: kInvalidArgument for an unknown pass, a
// pass that cannot be disabled or a budget that is too small; kInternal if a graph is invalid.
Status RunPasses(StageGraphs& graphs, const CompileOptions& options);

// Each pass is in its own file in passes/.
#define PENSTOCK_PASS(name, run, must_run, for_cpus, why) \
  Status run(StageGraphs& graphs, const CompileOptions& options);
#include "graph/passes/passes.def"
#undef PENSTOCK_PASS

}  // namespace penstock
