// CompileStage: turns the code of a stage into the graphs that a schedule's actions run.
//
// Captures the stage, runs the pass table, and assigns slots to the values that a microbatch keeps
// between actions. GraphProgram (interpret.h) then lowers the graphs to instruction lists.
#pragma once

#include <vector>

#include "base/result.h"
#include "graph/capture/capture.h"
#include "graph/ir/fingerprint.h"
#include "graph/ir/ir.h"
#include "graph/passes/stage_graphs.h"

namespace penstock {

// One graph of a stage, with the slots of its inputs and outputs among the values of a microbatch.
struct StagePiece {
  Graph graph;
  std::vector<int> inputs;   // by graph input: its slot
  std::vector<bool> last;    // by graph input: whether no later action reads it
  std::vector<int> outputs;  // by graph output: its slot. The first ones leave the stage: -1
};

// One of the stage's inputs or outputs.
struct StagePort {
  TensorType type;
  bool has_gradient = false;  // backward returns an input's gradient and takes an output's
  int slot = -1;              // of the input, or of the output's gradient (-1 if no piece reads it)
};

// The graphs that the actions of one stage run. F runs forward, I runs backward_input and W runs
// backward_weight. B runs backward_input, then backward_weight. A first stage has an empty
// backward_input.
struct StageProgram {
  StagePiece forward;
  StagePiece backward_input;
  StagePiece backward_weight;
  // OVERLAP_F_B runs this. Its first inputs and outputs are forward's and use the slots of one
  // microbatch. The remaining ones are backward's and use the slots of another; the input gradients
  // are the last outputs. Empty unless CompileOptions::overlapped is set.
  StagePiece overlapped;
  // UNSHARD and REDUCE_GRAD run these, see StageGraphs. They use no slots. Empty unless weights or
  // gradients are in shards.
  Graph unshard;
  Graph reduce_grad;
  std::vector<GradientSum> sums = {};  // of one parameter in this order
  int slots = 0;                       // per microbatch
  // The last outputs of forward that leave the stage are the new values of these tensors.
  std::vector<at::Tensor> updated_buffers = {};
  std::vector<StagePort> inputs;
  std::vector<StagePort> outputs;
  bool random = false;           // whether a node draws random numbers
  bool backward_random = false;  // whether a node of backward does
  bool exchanges = false;        // whether a node is a collective
  // Bytes that a microbatch keeps alive from the end of F to I or B. Includes kept outputs, but not
  // kept inputs.
  std::int64_t saved_bytes = 0;
  std::int64_t live_bytes = 0;  // bytes kept alive from the end of I to W
  Fingerprint captured = {};    // what was captured; only with CompileOptions::fingerprints
};

// Runs the pass table (passes.h) on a captured stage.
Result<StageGraphs> BuildStageGraphs(JointGraph joint, const CompileOptions& options);
StageProgram MakeStageProgram(const StageGraphs& graphs);
// Sets what follows from the pieces: the types of the ports, random, backward_random and exchanges.
void DescribePieces(StageProgram& program);
// Captures the stage, runs the passes and assigns the slots. Requires: options.stop_after is empty.
Result<StageProgram> CompileStage(const StageSpec& spec, const CompileOptions& options);

}  // namespace penstock
