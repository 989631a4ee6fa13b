// CompileStage: a stage's code becomes the graphs that a schedule's actions run.
//
// Captures the stage, runs the pass table, and numbers the values that a microbatch holds between
// actions. Bind the result to instruction lists with GraphProgram (interpret.h).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/capture/capture.h"
#include "graph/ir/ir.h"
#include "graph/passes/stage_graphs.h"

namespace penstock {

// One graph with the places of its inputs and outputs among the values that a microbatch holds.
struct Piece {
  Graph graph;
  std::vector<int> inputs;   // by graph input: its place
  std::vector<bool> last;    // by graph input: no later action reads it
  std::vector<int> outputs;  // by graph output: its place, -1 for what leaves the stage (first)
};

// One of the stage's inputs or outputs.
struct StagePort {
  TensorType type;
  bool has_gradient = false;  // backward makes it of an input, takes it of an output
  int place = -1;             // of the input; of the output's gradient, -1 where no piece reads it
};

// What a schedule's actions of one stage run. F: forward; I: backward_input; W: backward_weight;
// B: backward_input, then backward_weight. A first stage has an empty backward_input.
struct StageProgram {
  Piece forward;
  Piece backward_input;
  Piece backward_weight;
  // OVERLAP_F_B: the places of forward's inputs and outputs are of one microbatch, those that
  // follow of another, whose input gradients are the last outputs. An empty graph unless asked for.
  Piece overlapped;
  int held = 0;  // places of a microbatch
  std::vector<StagePort> inputs;
  std::vector<StagePort> outputs;
  bool random = false;           // some node draws random numbers
  bool backward_random = false;  // likewise, of the two halves of backward
  bool exchanges = false;        // some node is a collective
  // Held by a microbatch from the end of F to I or B: kept outputs with it, kept inputs not.
  std::int64_t saved_bytes = 0;
  std::int64_t live_bytes = 0;  // held from the end of I to W
};

// Runs the pass table on a captured stage (see passes.h).
Result<StageGraphs> BuildStageGraphs(JointGraph joint, const CompileOptions& options);
StageProgram MakeStageProgram(const StageGraphs& graphs);
// Sets what follows from the pieces alone: the ports' types, random, backward_random, exchanges.
void DescribePieces(StageProgram& program);
// Capture, passes and numbering in one.
Result<StageProgram> CompileStage(const StageSpec& spec, const CompileOptions& options);

}  // namespace penstock
