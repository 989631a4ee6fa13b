// The data of graph passes: the graphs of one stage, and the compile options.
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

// A parameter whose accumulated gradient a step sums over a c10d group (c10d_groups.h), or replaces
// by the mean, before it updates the parameter.
struct GradientSum {
  std::string parameter;
  std::int64_t group = 0;
  bool is_mean = false;

  friend auto operator<=>(const GradientSum&, const GradientSum&) = default;
};

// The graphs of a stage during compilation. A graph that no pass has created yet has no name.
struct StageGraphs {
  JointGraph joint;
  // Inputs: the stage's inputs. Outputs: the stage's outputs, then `saved`.
  Graph forward;
  // Inputs: the saved values, stage inputs and gradients of outputs that it reads. Outputs: the
  // gradients of the stage's inputs. Parameter gradients are added to the bound gradients.
  Graph backward;
  // The two parts of backward. `backward_input` outputs the gradients of the stage's inputs, then
  // `live`. `backward_weight` has no outputs. B runs both in this order.
  Graph backward_input;
  Graph backward_weight;
  // The forward of one microbatch and the backward of another: inputs and outputs of forward, then
  // of WholeBackward (multiplex.h). Empty unless CompileOptions::overlapped is set.
  Graph overlapped;
  // Graphs of sharded parameters. `unshard` outputs all weights in sequence. `reduce_grad` has no
  // outputs: it sets the bound gradient shard to the sum of the bound unreduced gradients over the
  // replicas. Empty unless weights or gradients are in shards.
  Graph unshard;
  Graph reduce_grad;
  std::vector<GradientSum> sums;  // of one parameter in this order
  std::vector<ValueId> saved;     // from forward to backward; never a view
  std::vector<ValueId> live;      // from backward_input to backward_weight; never a view
};

// A save budget without a limit.
inline constexpr std::int64_t kSaveAll = std::numeric_limits<std::int64_t>::max();

struct CompileOptions {
  // Results are bitwise equal to autograd's. If false, passes may round sums in another order.
  bool exact = true;
  // Runs chains of ops as kernels, which the machine's C++ compiler compiles. With `exact`, results
  // are bitwise equal, otherwise within 1e-6 in fp32. Without a compiler, the ops run unfused.
  bool fuse = false;
  // Bytes that a microbatch may keep alive from the end of F to its backward, and from the end of I
  // to W. Values that exceed the budget are recomputed. 0 saves as little as possible.
  std::int64_t save_budget = kSaveAll;
  std::int64_t save_budget_for_weight = kSaveAll;
  // Recomputes only results of these modules; empty: any.
  std::vector<ModuleKind> recompute_modules = {};
  // Saves the inputs of all-gathers instead of results that the backward reads, which gathers
  // again.
  bool gather_again = false;
  // Whether ranks of a group have graphs of different sizes. Then no plan that depends on sizes may
  // say which collectives run again.
  bool ranks_differ = false;
  // Builds StageGraphs::overlapped, ordered by `costs`, which must outlive the passes. Estimates
  // costs if null. `costs` also order the nodes between the starts and waits of collectives.
  bool overlapped = false;
  const NodeCosts* costs = nullptr;
  KernelChoice kernels = ChooseKernels(ThisProcessor());
  std::vector<std::string> disabled = {};  // passes to skip
  std::string stop_after = {};             // the last pass to run; all if empty
  bool fingerprints = false;               // sets StageProgram::captured
  // Without gradients of inputs, backward_input computes what the gradients of several parameters
  // read, and backward_weight the rest. False: backward_weight computes all.
  bool divides_first = false;
  // Only captures: the program has no pieces, only its ports and its fingerprint.
  bool captures_only = false;
};

}  // namespace penstock
