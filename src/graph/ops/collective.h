// Collectives in a graph: the ops, and what carries them.
//
//   penstock::all_to_all(Tensor x, int group) -> Tensor              differentiable
//   penstock::all_to_all_start(Tensor x, int group) -> Tensor        begins it: a ticket
//   penstock::all_to_all_wait(Tensor ticket, Tensor x, int group) -> Tensor   its result
//
// x is cut along its first dimension into as many equal blocks as the group has ranks: block r goes
// to rank r, and block s of the result came from rank s. Its gradient is all_to_all of the result's
// gradient. A model calls all_to_all; the multiplex pass makes the other two of it. The wait
// reads x, so that what is on its way stays in memory.
// `group` is the group's number, the same on all of its ranks; a rank's thread reaches the group
// through the GroupEnd that it made.
// Order: the ranks of a group start the same collectives in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "graph/ir/ir.h"

namespace penstock {

// One rank's end of a group of ranks that exchange data.
// Threads: one at a time. Errors: throws std::runtime_error where a rank is lost or late.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int ranks() const = 0;
  // Begins to send the ranks() equal blocks of `data`, which stays as it is until the wait for the
  // ticket that this returns, at once.
  virtual std::int64_t StartAllToAll(std::span<const std::byte> data) = 0;
  // Fills `result`, as large as what was sent, when all of it is there.
  virtual void Wait(std::int64_t ticket, std::span<std::byte> result) = 0;
};

// While it lives, graphs and models that this thread runs reach the group through `collective`.
// Made and destroyed by that thread. Throws InternalError where the thread has an end of the group.
class GroupEnd {
 public:
  GroupEnd(int group, std::unique_ptr<Collective> collective);
  ~GroupEnd();
  GroupEnd(const GroupEnd&) = delete;
  GroupEnd& operator=(const GroupEnd&) = delete;

 private:
  int group_;
};

// While it lives, collectives of this thread make zeros and reach nobody: a stage is captured by
// one rank alone.
class QuietCollectives {
 public:
  QuietCollectives();
  ~QuietCollectives();
  QuietCollectives(const QuietCollectives&) = delete;
  QuietCollectives& operator=(const QuietCollectives&) = delete;

 private:
  bool before_;
};

// all_to_all(x, group), with autograd.
at::Tensor AllToAll(const at::Tensor& x, int group);

// The ops that begin and end what a node does in one.
struct SplitCollective {
  c10::OperatorHandle start;  // the node's arguments -> ticket
  c10::OperatorHandle wait;   // ticket, the node's arguments -> the node's result
};
TensorType TicketType();
// nullopt where the node is no collective, or only a part of one. A start takes contiguous tensors.
std::optional<SplitCollective> SplitOf(const Node& node);
// Requires: SplitOf(node), or a node with one of its ops.
std::int64_t GroupOf(const Node& node);
// Whether the node is a collective or a part of one: never folded, never run again to save memory.
bool IsCollective(const Node& node);

}  // namespace penstock
