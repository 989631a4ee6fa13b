// Collectives in a graph. x and the results are split along their first dimension, their rows.
//
//   penstock::all_gather(Tensor x, int ranks, int group) -> Tensor
//   penstock::reduce_scatter(Tensor x, int ranks, int group) -> Tensor
//   penstock::all_reduce(Tensor x, int group) -> Tensor
//   penstock::all_to_all(Tensor x, int group) -> Tensor
//   penstock::all_to_all_uneven(Tensor x, int[] sent, int[] received, int group) -> Tensor
//   penstock::all_to_all_rows(Tensor x, Tensor sent, Tensor received, int rows, int group)
//       -> Tensor
//   penstock::broadcast(Tensor x, int root, int group) -> Tensor
//   penstock::reduce(Tensor x, int root, int group) -> Tensor
//
// `group` is the number of the group, which is the same on all its ranks. A thread joins a group by
// a GroupEndpoint. `ranks` is the number of its ranks, because a single rank, which need not have
// joined, captures a stage.
//
// Differentiates the sum of the losses of all ranks. all_gather and reduce_scatter are the
// gradients of each other, and so are broadcast and reduce. all_reduce is its own gradient, and so
// is all_to_all, with the counts of rows swapped. A gradient is a collective too: x requires one on
// all ranks or on none.
//
// A model calls these ops. HideCollectives divides each op into two: NAME_start, with the same
// arguments, returns a ticket, and NAME_wait, with the ticket and the same arguments, returns the
// result. The wait takes x, so that the data stays in memory while it is in flight. Order: all
// ranks of a group start the same collectives in the same order.
//
// Errors: the ops throw std::runtime_error with the error of the RankGroup.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "collective/rank_group.h"
#include "graph/ir/ir.h"

namespace penstock {

// A rank's end of a group, and the tensors of its collectives in flight. Threads: one at a time.
class GroupEnd {
 public:
  explicit GroupEnd(std::shared_ptr<RankGroup> group) : group_(std::move(group)) {}

  RankGroup& group() const { return *group_; }
  // Start and wait for a collective. The tensors stay in memory in between. The functions throw
  // std::runtime_error with the error of the group.
  RankGroup::Ticket Start(const CollectiveCall& call, const at::Tensor& x,
                          const at::Tensor& result);
  at::Tensor Wait(RankGroup::Ticket ticket);

 private:
  struct InFlight {
    at::Tensor input, result;
  };
  std::map<RankGroup::Ticket, InFlight> in_flight_;
  // The last member, because its destructor waits until no other rank uses the tensors.
  std::shared_ptr<RankGroup> group_;
};

// While a GroupEndpoint exists, graphs and models that its thread runs use `end` for the group. The
// same thread constructs and destroys it. The constructor throws InternalError if the thread
// already has an endpoint of the group.
class GroupEndpoint {
 public:
  // `end` must outlive the endpoint.
  GroupEndpoint(int group, GroupEnd& end);
  GroupEndpoint(int group, std::unique_ptr<RankGroup> end);
  ~GroupEndpoint();
  GroupEndpoint(const GroupEndpoint&) = delete;
  GroupEndpoint& operator=(const GroupEndpoint&) = delete;

 private:
  int group_;
  std::unique_ptr<GroupEnd> owned_;
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

// Call the ops, which support autograd.
//
// The rows of all ranks, by rank. All ranks have the same number of rows.
at::Tensor AllGather(const at::Tensor& x, int ranks, int group);
// This rank's block of the sum over the ranks. x has one equal block of rows per rank.
at::Tensor ReduceScatter(const at::Tensor& x, int ranks, int group);
// The sum over the ranks. Sums are of float32, bfloat16, float64 or int64.
at::Tensor AllReduce(const at::Tensor& x, int group);
// The sum likewise, for what all ranks compute alike from it and which counts once: the gradient of
// the sum is that of each summand.
at::Tensor SumForAll(const at::Tensor& x, int group);
// Sends block r of the equal blocks of rows to rank r. Block s of the result comes from rank s.
at::Tensor AllToAll(const at::Tensor& x, int group);
// Sends `sent[r]` rows to rank r, and receives `received[s]` rows from rank s.
at::Tensor AllToAll(const at::Tensor& x, at::IntArrayRef sent, at::IntArrayRef received, int group);
// Variants whose counts (int64) differ from run to run: for each rank, equally many counts
// whose sum is its number of rows. The number of rows of the result of SendRows, and of x of
// ReturnRows, varies (TensorType::rows_vary); `rows` counts the result's. They are each other's
// gradients.
at::Tensor SendRows(const at::Tensor& x, const at::Tensor& sent, const at::Tensor& received,
                    int group);
at::Tensor ReturnRows(const at::Tensor& x, const at::Tensor& sent, const at::Tensor& received,
                      std::int64_t rows, int group);
// x of rank `root`. All ranks have the same shape.
at::Tensor Broadcast(const at::Tensor& x, int root, int group);
// The sum over the ranks on rank `root`, and zeros on the others.
at::Tensor Reduce(const at::Tensor& x, int root, int group);

// The two ops that replace a collective node.
struct SplitCollective {
  c10::OperatorHandle start;  // the node's arguments -> ticket
  c10::OperatorHandle wait;   // ticket, the node's arguments -> the node's result
};
TensorType TicketType();
// Returns nullopt unless the node is a whole collective. A start accepts contiguous tensors only.
std::optional<SplitCollective> SplitOf(const Node& node);
// Returns the whole op of a start, or nullopt unless the node is one.
std::optional<c10::OperatorHandle> WholeOf(const Node& node);
bool IsWait(const Node& node);
// Returns the number of the node's group. Requires: IsCollective(node).
std::int64_t GroupOf(const Node& node);
// Returns whether the node is a collective, or the start or wait of one. Such nodes are never
// folded, and never recomputed unless CompileOptions::gather_again is set.
bool IsCollective(const Node& node);
// Returns whether the node is a whole all-gather.
bool IsAllGather(const Node& node);

}  // namespace penstock
