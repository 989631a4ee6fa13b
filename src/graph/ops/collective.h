// Collectives in a graph: the ops, and the interface to what carries them.
//
//   penstock::all_to_all(Tensor x, int group) -> Tensor              differentiable
//   penstock::all_to_all_start(Tensor x, int group) -> Tensor        starts it, returns a ticket
//   penstock::all_to_all_wait(Tensor ticket, Tensor x, int group) -> Tensor   returns its result
//
// x is split along its first dimension into one equal block per rank of the group: block r goes to
// rank r, and block s of the result comes from rank s. Its gradient is all_to_all of the gradient
// of the result. A model calls all_to_all; the multiplex pass splits it into the other two. The
// wait reads x so that the data stays in memory while it is in flight.
// `group` is the number of the group, the same on all its ranks. A rank's thread reaches the group
// through its GroupEnd.
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

// One rank's endpoint in a group of ranks that exchange data.
// Threads: one at a time. Errors: throws std::runtime_error if a rank is lost or late.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int ranks() const = 0;
  // Starts sending the ranks() equal blocks of `data` and returns a ticket immediately. `data` must
  // not change until the wait for that ticket.
  virtual std::int64_t StartAllToAll(std::span<const std::byte> data) = 0;
  // Waits for all blocks and writes them to `result`, which is as large as the sent data.
  virtual void Wait(std::int64_t ticket, std::span<std::byte> result) = 0;
};

// While a GroupEnd exists, graphs and models that this thread runs reach the group through
// `collective`. It is created and destroyed on that thread. Throws InternalError if the thread
// already has an endpoint of the group.
class GroupEnd {
 public:
  GroupEnd(int group, std::unique_ptr<Collective> collective);
  ~GroupEnd();
  GroupEnd(const GroupEnd&) = delete;
  GroupEnd& operator=(const GroupEnd&) = delete;

 private:
  int group_;
};

// While it exists, collectives of this thread return zeros and communicate with no one, because one
// rank alone captures a stage.
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

// The two ops that a collective node is split into.
struct SplitCollective {
  c10::OperatorHandle start;  // the node's arguments -> ticket
  c10::OperatorHandle wait;   // ticket, the node's arguments -> the node's result
};
TensorType TicketType();
// Returns nullopt if the node is not a whole collective. A start takes contiguous tensors only.
std::optional<SplitCollective> SplitOf(const Node& node);
// Requires: the node is a collective, or one half of a split one.
std::int64_t GroupOf(const Node& node);
// Returns whether the node is a collective or one half of one. Such nodes are never folded and
// never recomputed.
bool IsCollective(const Node& node);

}  // namespace penstock
