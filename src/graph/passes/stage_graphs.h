// What the graph passes read and change: the graphs of one stage, and the options they follow.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/ir/ir.h"
#include "graph/kernel/processor.h"

namespace penstock {

class NodeCosts;  // node_costs.h

// The graphs of a stage while it is cut up. Passes read and change this.
struct StageGraphs {
  JointGraph joint;
  // forward: the stage's inputs -> its outputs, then `saved`.
  Graph forward;
  // backward: saved values, stage inputs and the outputs' gradients, as it needs them -> input
  // gradients; parameter gradients are added into the bound gradients.
  Graph backward;
  // The two halves of backward: `backward_input` -> input gradients, then `live`;
  // `backward_weight` has no outputs. Run in this order they are the plain B, too.
  Graph backward_input;
  Graph backward_weight;
  // Forward of one microbatch and backward of another: inputs and outputs of forward, then those of
  // WholeBackward (multiplex.h). Only where the options ask for it.
  Graph overlapped;
  std::vector<ValueId> saved;  // made by forward, read by backward; never a view
  std::vector<ValueId> live;   // made by backward_input, read by backward_weight; never a view
};

inline constexpr std::int64_t kHoldAll = std::numeric_limits<std::int64_t>::max();

struct CompileOptions {
  // Bitwise equal to autograd. False adds weight gradients up inside the matmul (addmm_).
  bool exact = true;
  // Runs chains of ops as kernels that the machine's compiler makes; with `exact` only what keeps
  // the bits, else within 1e-6 of the results in fp32. Plain ops where no compiler is present.
  bool fuse = false;
  // Bytes that a microbatch may hold from the end of F to its backward, and from the end of I to W:
  // what is not held is made again. kHoldAll, or 0 for as little as can be.
  std::int64_t hold = kHoldAll;
  std::int64_t hold_for_weight = kHoldAll;
  // Makes `overlapped`, ordered by these costs; null: by estimates. They must outlive the passes.
  bool overlapped = false;
  const NodeCosts* costs = nullptr;
  KernelChoice kernels = ChooseKernels(ThisProcessor());
  std::vector<std::string> disabled;  // passes left out, by name; refuses those that must run
  std::string stop_after;             // runs no pass after this one; empty: all
};

}  // namespace penstock
