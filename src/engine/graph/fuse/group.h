// FuseGroup: nodes that can run as one kernel, and their common index space.
//
// The space is a list of dims. Every tensor of a node is an access: the position of a point in the
// memory of a whole value, as a linear function of the dims. Dims are split until the views and
// shapes of all members are such functions. One member may read another only if both access the
// same element at every point, or its mirror (IsMirrored). Then no memory is needed between them.
// The value of a member belongs to a row if it is constant along the row dims of the group.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/kernel/kernel.h"

namespace penstock {

// A tensor that a node accesses. Strides are by dim of the group.
struct FuseAccess {
  ValueId root = kNoValue;  // kNoValue for a number
  KernelAccess at;
  double number = 0;
};

struct FuseMember {
  int node = -1;                     // index in the graph
  std::string op;                    // a kernel op, or "copy", "sum" or "mean"
  std::vector<FuseAccess> accesses;  // of the output, then of the operands
  std::vector<bool> reduced;         // by dim: whether it is summed over; empty if not a sum
  bool accumulates = false;          // adds its operand to an accumulator, its output
  int also = -1;           // index of another node that it replaces, whose only reader it is
  std::int64_t count = 1;  // number of summed elements
};

struct FuseGroup {
  std::vector<std::int64_t> sizes;  // by dim
  std::vector<FuseMember> members;  // in the order of the graph
};

// Returns a group of this node alone, or nullopt if no kernel can run it. With `exact`, accepts
// only ops whose results are bitwise equal.
std::optional<FuseGroup> FuseGroupOf(const Graph& graph, int node, bool exact);

// Returns both as one group, or nullopt if no kernel can run them together. The caller checks that
// the graph still has a valid order.
std::optional<FuseGroup> Join(const FuseGroup& a, const FuseGroup& b);

// Returns, by dim, whether it is a dim of a row. Returns nullopt if the members disagree.
std::optional<std::vector<bool>> RowDims(const FuseGroup& group);

// Returns the dims in the order of the loops, outermost first. Dims of a row are last; otherwise
// dims with large strides are first.
std::vector<std::size_t> LoopOrder(const FuseGroup& group);

// Returns whether one kernel can run the group.
bool Fits(const FuseGroup& group);

// Returns whether `read` equals `written` with some dims reversed, and sets those dims in
// `mirrored`.
bool IsMirrored(const FuseGroup& group, const KernelAccess& written, const KernelAccess& read,
                std::vector<bool>& mirrored);

struct FusedKernel {
  Kernel kernel;
  std::vector<ValueId> inputs;
};
// Returns a kernel that computes the group and stores the values of the `stored` members, in their
// order.
FusedKernel KernelFor(const Graph& graph, const FuseGroup& group,
                      const std::vector<std::size_t>& stored);

// Returns the index of the member that produces `root`, or -1.
int ProducerOf(const FuseGroup& group, ValueId root);

}  // namespace penstock
