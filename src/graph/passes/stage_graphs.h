// What the graph passes read and change: the graphs of one stage, and the options.
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

// The graphs of a stage during compilation. Passes read and change this.
struct StageGraphs {
  JointGraph joint;
  // Inputs: the stage's inputs. Outputs: the stage's outputs, then `saved`.
  Graph forward;
  // Inputs: the saved values, stage inputs and gradients of outputs that it needs. Outputs: the
  // gradients of the inputs. Parameter gradients are added into the bound gradients.
  Graph backward;
  // The two halves of backward. `backward_input` outputs the gradients of the inputs, then `live`;
  // `backward_weight` has no outputs. B runs both in this order.
  Graph backward_input;
  Graph backward_weight;
  // The forward of one microbatch and the backward of another: inputs and outputs of forward, then
  // those of WholeBackward (multiplex.h). Empty unless the options ask for it.
  Graph overlapped;
  std::vector<ValueId> saved;  // from forward to backward; never a view
  std::vector<ValueId> live;   // from backward_input to backward_weight; never a view
};

inline constexpr std::int64_t kHoldAll = std::numeric_limits<std::int64_t>::max();

struct CompileOptions {
  // Results are bitwise equal to autograd. False accumulates weight gradients inside the matmul
  // (addmm_).
  bool exact = true;
  // Runs chains of ops as kernels compiled by the machine's compiler. With `exact`, only if results
  // stay bitwise equal; otherwise within 1e-6 of the results in fp32. Uses the plain ops if there
  // is no compiler.
  bool fuse = false;
  // Bytes that a microbatch may keep alive from the end of F to its backward, and from the end of I
  // to W. The rest is recomputed. kHoldAll for no limit, 0 for as few as possible.
  std::int64_t hold = kHoldAll;
  std::int64_t hold_for_weight = kHoldAll;
  // Builds `overlapped`, ordered by these costs, which must outlive the passes. Null: by estimated
  // costs.
  bool overlapped = false;
  const NodeCosts* costs = nullptr;
  KernelChoice kernels = ChooseKernels(ThisProcessor());
  std::vector<std::string> disabled;  // names of passes to skip; passes that must run are rejected
  std::string stop_after;             // the last pass to run; empty: all
};

}  // namespace penstock
