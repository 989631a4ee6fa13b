// FuseGroup: nodes that can run as one kernel, and their common index space.
//
// The space is a list of dims. Every tensor of a node is an access: the position of a point in the
// memory of a whole value, as a linear function of the dims. Dims are split until the views and
// shapes of all members are such functions. Within the group, one node may read another only if
// both access the same element at every point, or its mirror (see Mirrored); no memory is then
// needed between them. A member's value that is constant along the `row` dims of the group belongs
// to a row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/kernel/kernel.h"

namespace penstock {

// A tensor that a node accesses; strides are by dim of the group.
struct FuseAccess {
  ValueId root = kNoValue;  // kNoValue: a number
  KernelAccess at;
  double number = 0;
};

struct FuseMember {
  int node = -1;                     // index in the graph
  std::string op;                    // a kernel op, or "copy", "sum" or "mean"
  std::vector<FuseAccess> accesses;  // of the output, then of the operands
  std::vector<bool> reduced;         // by dim: whether it is summed over; empty if not a sum
  bool accumulates = false;          // adds its operand to its output, which already exists
  int also = -1;                     // another node that it replaces; it must be the only reader
  std::int64_t count = 1;            // number of summed elements
};

struct FuseGroup {
  std::vector<std::int64_t> sizes;  // by dim
  std::vector<FuseMember> members;  // in the order of the graph
};

// Returns the node as a group of its own, or nullopt if no kernel can run it. With `exact`, accepts
// only ops whose results are bitwise equal.
std::optional<FuseGroup> FuseGroupOf(const Graph& graph, int node, bool exact);

// Returns both as one group, or nullopt if they do not fit together. The caller must check that the
// graph still has a valid order.
std::optional<FuseGroup> Join(const FuseGroup& a, const FuseGroup& b);

// Returns, by dim, whether it belongs to a row, or nullopt if the members disagree.
std::optional<std::vector<bool>> RowDims(const FuseGroup& group);

// Returns the dims as loops, outermost first: dims of a row last, large strides outside.
std::vector<std::size_t> LoopOrder(const FuseGroup& group);

// Returns whether the group can be one kernel.
bool Fits(const FuseGroup& group);

// Returns whether `read` is `made` with some dims reversed, and marks those dims.
bool Mirrored(const FuseGroup& group, const KernelAccess& made, const KernelAccess& read,
              std::vector<bool>& mirrored);

// The group as a kernel that stores the values of the `stored` members, in their order.
struct FusedKernel {
  Kernel kernel;
  std::vector<ValueId> inputs;
};
FusedKernel KernelFor(const Graph& graph, const FuseGroup& group,
                      const std::vector<std::size_t>& stored, bool exact);

// Returns the index of the member that produces `root`, or -1.
int ProducerOf(const FuseGroup& group, ValueId root);

}  // namespace penstock
