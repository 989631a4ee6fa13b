// RankGroup: one rank's end of a group of ranks that exchange data by collectives.
//
// A collective is started and later waited for by its ticket. Data moves in between. All ranks of a
// group start the same collectives in the same order; each rank may wait for its tickets in any
// order, and several may be in flight. The ranks of a group are numbered from 0.
//
// Sums are fixed: the ranks' elements are added in ascending order of rank. So all implementations
// and all placements of the ranks give bitwise the same result.
//
// Ownership: the caller keeps inputs unchanged, and outputs untouched, until the wait has returned.
// Threads: one thread at a time uses an end, and each end of a group may have its own. Any thread
// may call Abort.
// Errors: a start returns kInvalidArgument if the sizes do not fit, and starts nothing. Everything
// else is an error of the wait, and ends the group: an abort (with its reason), a rank that starts
// another collective (kInvalidArgument), a rank that is late (kDeadlineExceeded) or gone
// (kUnavailable). Except for an abort, the error names the group, the collective and the rank. Then
// the outputs in flight have unspecified contents, and memory is the caller's again once the wait
// has returned. Destroying an end before its collectives are complete aborts the group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collective/element_sum.h"

namespace penstock {

enum class CollectiveKind : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kReduce,
  kBarrier,
};
// "all-gather"
std::string_view NameOf(CollectiveKind kind);

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

// The arguments of a collective on one rank.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kBarrier;
  ConstBytes input = {};
  Bytes output = {};
  ElementType type = ElementType::kFloat32;  // of a sum
  int root = 0;                              // of a broadcast or a reduce
  // Only for an all-to-all: the bytes that are sent to and received from each rank.
  std::vector<std::size_t> send_bytes = {}, receive_bytes = {};
};

class RankGroup {
 public:
  using Ticket = std::int64_t;

  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  virtual ~RankGroup() = default;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // `output` gets the inputs of all ranks, by rank. All inputs have the same size. `input` may be
  // this rank's block of `output`.
  Result<Ticket> AllGather(ConstBytes input, Bytes output);
  // `output` gets the sum over the ranks of block rank() of their inputs, which have ranks() blocks
  // of the size of `output`. `output` may be this rank's block of `input`.
  Result<Ticket> ReduceScatter(ConstBytes input, Bytes output, ElementType type);
  // `output` gets the sum of the inputs of all ranks. It may be the same memory as `input`.
  Result<Ticket> AllReduce(ConstBytes input, Bytes output, ElementType type);
  // Sends block r of the ranks() equal blocks of `input` to rank r. Block s of `output` comes from
  // rank s. Both have the same size, and must not overlap.
  Result<Ticket> AllToAll(ConstBytes input, Bytes output);
  // Exchanges blocks of any size, one after another, in bytes. What a rank sends to another
  // must be what that rank receives from it.
  Result<Ticket> AllToAll(ConstBytes input, std::vector<std::size_t> send_bytes, Bytes output,
                          std::vector<std::size_t> receive_bytes);
  // `data` of every rank gets `data` of rank `root`. The root, too, waits until all ranks have
  // started the broadcast.
  Result<Ticket> Broadcast(Bytes data, int root);
  // `output` of rank `root` gets the sum of the inputs of all ranks. The outputs of the others have
  // the same size and do not change. `output` may be the same memory as `input`. The others, too,
  // wait until the root has started the reduce.
  Result<Ticket> Reduce(ConstBytes input, Bytes output, ElementType type, int root);
  // The wait returns after every rank has started the barrier.
  Result<Ticket> Barrier();

  // Starts a collective by its description. Never waits for another rank.
  Result<Ticket> Start(const CollectiveCall& call);

  // Waits until the output is complete and no rank reads the input any more, without using a core.
  // Each ticket is waited for once; another wait for it is kInvalidArgument.
  virtual Status Wait(Ticket ticket) = 0;

  // Ends the group: every present and later wait on every rank returns the first reason.
  virtual void Abort(const Error& reason) = 0;

 protected:
  RankGroup(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

 private:
  // Starts a collective whose sizes fit.
  virtual Ticket DoStart(const CollectiveCall& call) = 0;

  const int rank_;
  const int ranks_;
};

}  // namespace penstock
