// The pass table: turns the joint graph into the graphs of the actions.
#pragma once

#include <span>
#include <string_view>

#include "graph/passes/stage_graphs.h"

namespace penstock {

struct Pass {
  std::string_view name;
  Status (*run)(StageGraphs& graphs, const CompileOptions& options);
  bool must_run;         // splitting passes: later passes depend on them
  std::string_view why;  // the reason for its position
};

// Returns the graphs that exist so far.
std::vector<Graph*> AllGraphs(StageGraphs& graphs);
// Returns the passes in execution order.
std::span<const Pass> Passes();
// Runs the table without the disabled passes, and verifies every graph after every pass. Rejects
// unknown names.
Status RunPasses(StageGraphs& graphs, const CompileOptions& options);

// Each pass is in its own file in passes/.
Status FoldConstants(StageGraphs& graphs, const CompileOptions& options);
Status Simplify(StageGraphs& graphs, const CompileOptions& options);
Status MergeCommon(StageGraphs& graphs, const CompileOptions& options);
Status AttentionByMatmul(StageGraphs& graphs, const CompileOptions& options);
Status CrossEntropy(StageGraphs& graphs, const CompileOptions& options);
Status Partition(StageGraphs& graphs, const CompileOptions& options);
Status Recompute(StageGraphs& graphs, const CompileOptions& options);
Status RecomputeForWeight(StageGraphs& graphs, const CompileOptions& options);
Status SplitInputWeight(StageGraphs& graphs, const CompileOptions& options);
Status AccumulateGradients(StageGraphs& graphs, const CompileOptions& options);
Status AccumulateInMatmul(StageGraphs& graphs, const CompileOptions& options);
Status MatmulByOneDnn(StageGraphs& graphs, const CompileOptions& options);
Status Fuse(StageGraphs& graphs, const CompileOptions& options);
Status Multiplex(StageGraphs& graphs, const CompileOptions& options);
Status RemoveDead(StageGraphs& graphs, const CompileOptions& options);

}  // namespace penstock
