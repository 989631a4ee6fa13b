// Collectives in a graph: the ops, and the interface of their implementations.
//
//   penstock::all_to_all(Tensor x, int group) -> Tensor              differentiable
//   penstock::all_to_all_start(Tensor x, int group) -> Tensor        returns a ticket
//   penstock::all_to_all_wait(Tensor ticket, Tensor x, int group) -> Tensor   returns the result
//
// x is split along its first dimension into one equal block per rank of the group. Block r is sent
// to rank r, and block s of the result comes from rank s. The gradient of x is all_to_all of the
// gradient of the result. A model calls all_to_all, which the multiplex pass splits into the other
// two ops. The wait takes x, so that the data stays in memory while it is in flight. `group` is the
// number of the group, which is the same on all its ranks. A thread joins a group by a
// GroupEndpoint. Order: all ranks of a group start the same collectives in the same order.
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
// Threads: one at a time. Errors: throws std::runtime_error if another rank is lost or times out.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int ranks() const = 0;
  // Starts sending the ranks() equal blocks of `data` and returns a ticket immediately. The caller
  // keeps `data` unchanged until the wait for that ticket.
  virtual std::int64_t StartAllToAll(std::span<const std::byte> data) = 0;
  // Waits for the blocks of all ranks and writes them to `result`, which is as large as the sent
  // data.
  virtual void Wait(std::int64_t ticket, std::span<std::byte> result) = 0;
};

// While a GroupEndpoint exists, graphs and models that its thread runs use `collective` for the
// group. The same thread constructs and destroys it. The constructor throws InternalError if the
// thread already has an endpoint of the group.
class GroupEndpoint {
 public:
  GroupEndpoint(int group, std::unique_ptr<Collective> collective);
  ~GroupEndpoint();
  GroupEndpoint(const GroupEndpoint&) = delete;
  GroupEndpoint& operator=(const GroupEndpoint&) = delete;

 private:
  int group_;
};

// While a guard exists, collectives of its thread return zeros and do not communicate. Capture uses
// it, because a single rank captures a stage.
class DisableCollectivesGuard {
 public:
  DisableCollectivesGuard();
  ~DisableCollectivesGuard();
  DisableCollectivesGuard(const DisableCollectivesGuard&) = delete;
  DisableCollectivesGuard& operator=(const DisableCollectivesGuard&) = delete;

 private:
  bool previous_;
};

// Calls penstock::all_to_all. Supports autograd.
at::Tensor AllToAll(const at::Tensor& x, int group);

// The two ops that replace a collective node.
struct SplitCollective {
  c10::OperatorHandle start;  // the node's arguments -> ticket
  c10::OperatorHandle wait;   // ticket, the node's arguments -> the node's result
};
TensorType TicketType();
// Returns nullopt unless the node is a whole collective. A start accepts contiguous tensors only.
std::optional<SplitCollective> SplitOf(const Node& node);
// Returns the number of the node's group. Requires: IsCollective(node).
std::int64_t GroupOf(const Node& node);
// Returns whether the node is a collective, or the start or wait of one. Such nodes are never
// folded or recomputed.
bool IsCollective(const Node& node);

}  // namespace penstock
