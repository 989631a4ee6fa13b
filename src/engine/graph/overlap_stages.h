// The pieces of compiled stages that compute while their collectives move data.
#pragma once

#include <optional>

#include "graph/analysis/node_costs.h"
#include "graph/compile.h"

namespace penstock {

// Returns the multiplexed forward of one stage and backward of another stage of the same rank. The
// parameters of the second stage follow the `parameters` parameters of the first. For a single
// stage, `parameters` is 0. Errors: as MultiplexGraphs.
Result<StagePiece> OverlapStages(const StageProgram& forward, const StageProgram& backward,
                                 int parameters, const NodeCosts& costs);
// B as two pieces: `input` has backward_input and those nodes of backward_weight that run while it
// would wait for collectives, and `weight` has the others. The values between them have slots after
// those of the program.
struct InterleavedBackward {
  StagePiece input;
  StagePiece weight;
  int slots = 0;
};
// Returns nullopt if nothing can run in between: backward_input has no collectives, or one piece
// has no nodes. Also if the backward draws random numbers, because each piece is seeded by itself.
std::optional<InterleavedBackward> InterleaveBackward(const StageProgram& program,
                                                      const NodeCosts& costs);
// Returns the piece of an overlapped graph: its first inputs and outputs use the slots of the
// forward's microbatch, the others the slots of the backward's.
StagePiece MakeOverlappedPiece(Graph overlapped, const StageProgram& forward,
                               const StageProgram& backward);

}  // namespace penstock
