// CompileStage: turns the code of a stage into the graphs that a schedule's actions run.
//
// Captures the stage, runs the pass table, and assigns slots to the values that a microbatch keeps
// between actions. Use GraphProgram (interpret.h) to bind the result to instruction lists.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "graph/capture/capture.h"
#include "graph/ir/ir.h"
#include "graph/passes/stage_graphs.h"

namespace penstock {

// One graph, with the slots of its inputs and outputs among the values of a microbatch.
struct Piece {
  Graph graph;
  std::vector<int> inputs;   // by graph input: its slot
  std::vector<bool> last;    // by graph input: whether no later action reads it
  std::vector<int> outputs;  // by graph output: its slot; -1, first, for those that leave the stage
};

// One of the stage's inputs or outputs.
struct StagePort {
  TensorType type;
  bool has_gradient = false;  // for an input, backward returns it; for an output, takes it
  int place = -1;  // slot of the input, or of the output's gradient (-1 if no piece reads it)
};

// The graphs that the schedule's actions of one stage run. F runs forward; I runs backward_input; W
// runs backward_weight; B runs backward_input, then backward_weight. A first stage has an empty
// backward_input.
struct StageProgram {
  Piece forward;
  Piece backward_input;
  Piece backward_weight;
  // OVERLAP_F_B: the inputs and outputs of forward use the slots of one microbatch, and those after
  // them use the slots of another; the input gradients of the latter are the last outputs. An empty
  // graph unless the options ask for it.
  Piece overlapped;
  int slots = 0;  // of a microbatch
  std::vector<StagePort> inputs;
  std::vector<StagePort> outputs;
  bool random = false;           // whether a node draws random numbers
  bool backward_random = false;  // likewise, in the two halves of backward
  bool exchanges = false;        // whether a node is a collective
  // Bytes that a microbatch keeps alive from the end of F to I or B, including kept outputs but not
  // kept inputs.
  std::int64_t saved_bytes = 0;
  std::int64_t live_bytes = 0;  // bytes kept alive from the end of I to W
};

// Runs the pass table on a captured stage (see passes.h).
Result<StageGraphs> BuildStageGraphs(JointGraph joint, const CompileOptions& options);
StageProgram MakeStageProgram(const StageGraphs& graphs);
// Derives from the pieces alone: the types of the ports, random, backward_random and exchanges.
void DescribePieces(StageProgram& program);
// Captures, runs the passes and assigns the slots.
Result<StageProgram> CompileStage(const StageSpec& spec, const CompileOptions& options);

}  // namespace penstock
