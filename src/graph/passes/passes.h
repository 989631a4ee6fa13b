// The pass table: from the joint graph to the graphs of the actions, step by step.
#pragma once

#include <span>
#include <string_view>

#include "graph/passes/stage_graphs.h"

namespace penstock {

struct Pass {
  std::string_view name;
  Status (*run)(StageGraphs& graphs, const CompileOptions& options);
  bool must_run;         // cutting passes: the graphs after make no sense without
  std::string_view why;  // why it sits where it sits
};

// The graphs that there are so far.
std::vector<Graph*> AllGraphs(StageGraphs& graphs);
// In running order.
std::span<const Pass> Passes();
// Runs the table: leaves out what is disabled, verifies every graph after every pass. Refuses
// unknown names.
Status RunPasses(StageGraphs& graphs, const CompileOptions& options);

// Each in its own file under passes/.
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
