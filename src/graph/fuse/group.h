// FuseGroup: nodes that can run as one kernel, and the index space that they share.
//
// The space is a list of dims; every tensor that a node touches is an access: where in the memory
// of a whole value the point lies, linear in the dims. Dims are split until the views and shapes of
// all members are such linear functions. One node reads another within the group only where both
// stand at the same element at every point (or at its mirror, see Mirrored): then no memory lies
// between them. A member's value that is the same along the group's `row` dims belongs to a row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/kernel/kernel.h"

namespace penstock {

// A tensor of a node; strides by dim of the group.
struct FuseAccess {
  ValueId root = kNoValue;  // kNoValue: a number
  KernelAccess at;
  double number = 0;
};

struct FuseMember {
  int node = -1;                     // of the graph
  std::string op;                    // of a kernel's steps; "copy" for none, "sum", "mean"
  std::vector<FuseAccess> accesses;  // the output's, then the operands'
  std::vector<bool> reduced;         // by dim: summed over; empty where it is no sum
  bool gathers = false;              // adds its operand to its output, which is there before
  int also = -1;                     // a node that it stands for, too: only this one reads it
  std::int64_t count = 1;            // of elements in a sum
};

struct FuseGroup {
  std::vector<std::int64_t> sizes;  // by dim
  std::vector<FuseMember> members;  // in the graph's order
};

// The node as a group of its own; none where it has no place in a kernel. With `exact` only what
// gives the bits of the op.
std::optional<FuseGroup> FuseGroupOf(const Graph& graph, int node, bool exact);

// Both as one group; none where they do not fit. Not asked: whether the graph stays in an order
// that can run.
std::optional<FuseGroup> Join(const FuseGroup& a, const FuseGroup& b);

// By dim: whether it is one of a row; nothing where the members do not agree.
std::optional<std::vector<bool>> RowDims(const FuseGroup& group);

// The dims as loops, outermost first: those of a row last, large steps outside.
std::vector<std::size_t> LoopOrder(const FuseGroup& group);

// Whether the group can be one kernel.
bool Fits(const FuseGroup& group);

// Whether `read` is `made` with some dims run backwards; marks them.
bool Mirrored(const FuseGroup& group, const KernelAccess& made, const KernelAccess& read,
              std::vector<bool>& mirrored);

// The group as a kernel that stores what `stored` members make, in their order.
struct FusedKernel {
  Kernel kernel;
  std::vector<ValueId> inputs;
};
FusedKernel KernelFor(const Graph& graph, const FuseGroup& group,
                      const std::vector<std::size_t>& stored, bool exact);

// The place of the member that makes `root`; -1 where none does.
int MakerOf(const FuseGroup& group, ValueId root);

}  // namespace penstock
