#include "collective/exchange.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

template <class Span>
Span BlockOf(Span data, std::size_t block, std::size_t blocks) {
  const std::size_t bytes = data.size() / blocks;
  return data.subspan(block * bytes, bytes);
}

// Block `block` of whole elements; the sizes differ by at most one element.
template <class Span>
Span UnevenBlockOf(Span data, std::size_t block, std::size_t blocks, std::size_t element) {
  const std::size_t elements = data.size() / element;
  const std::size_t begin = elements * block / blocks * element;
  return data.subspan(begin, elements * (block + 1) / blocks * element - begin);
}

Exchange Broadcast(Bytes data, std::size_t root, std::size_t rank, std::size_t ranks) {
  Exchange exchange{std::vector<Exchange::Peer>(ranks), {}};
  if (rank != root) {
    exchange.peers[root] = {true, {}, data};
    return exchange;
  }
  // The other ranks send nothing, but the root waits for it, so that no rank gets far ahead.
  for (Exchange::Peer& peer : exchange.peers) peer = {true, data, {}};
  exchange.peers[rank].exchanges = false;
  return exchange;
}

Exchange Reduce(const CollectiveCall& call, std::size_t rank, std::size_t ranks) {
  Exchange exchange{std::vector<Exchange::Peer>(ranks), {}};
  if (rank != Index(call.root)) {
    exchange.peers[Index(call.root)] = {true, call.input, {}};
    return exchange;
  }
  // The root sends nothing, but the other ranks wait for it, so that none gets far ahead.
  for (Exchange::Peer& peer : exchange.peers) peer = {true, {}, call.output};
  exchange.peers[rank].send = call.input;
  exchange.sum = call.type;
  return exchange;
}

// A reduce-scatter, and an all-gather of its blocks.
std::vector<Exchange> AllReduce(const CollectiveCall& call, std::size_t rank, std::size_t ranks) {
  const std::size_t element = BytesOfElement(call.type);
  const Bytes own = UnevenBlockOf(call.output, rank, ranks, element);
  Exchange reduce{{}, call.type};
  Exchange gather;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    reduce.peers.push_back({true, UnevenBlockOf(call.input, peer, ranks, element), own});
    gather.peers.push_back({peer != rank, own, UnevenBlockOf(call.output, peer, ranks, element)});
  }
  return {std::move(reduce), std::move(gather)};
}

Exchange AllToAll(const CollectiveCall& call) {
  Exchange exchange;
  std::size_t sent = 0;
  std::size_t received = 0;
  for (std::size_t peer = 0; peer < call.send_bytes.size(); ++peer) {
    exchange.peers.push_back({true, call.input.subspan(sent, call.send_bytes[peer]),
                              call.output.subspan(received, call.receive_bytes[peer])});
    sent += call.send_bytes[peer];
    received += call.receive_bytes[peer];
  }
  return exchange;
}

}  // namespace

int Exchange::count() const {
  return static_cast<int>(std::ranges::count(peers, true, &Peer::exchanges));
}

std::vector<Exchange> ExchangesOf(const CollectiveCall& call, int rank, int ranks) {
  const std::size_t own = Index(rank);
  const std::size_t count = Index(ranks);
  if (call.kind == CollectiveKind::kAllReduce) return AllReduce(call, own, count);
  if (call.kind == CollectiveKind::kAllToAll) return {AllToAll(call)};
  if (call.kind == CollectiveKind::kBroadcast) {
    return {Broadcast(call.output, Index(call.root), own, count)};
  }
  if (call.kind == CollectiveKind::kReduce) return {Reduce(call, own, count)};
  Exchange exchange;
  for (std::size_t peer = 0; peer < count; ++peer) {
    if (call.kind == CollectiveKind::kAllGather) {
      exchange.peers.push_back({true, call.input, BlockOf(call.output, peer, count)});
    } else if (call.kind == CollectiveKind::kReduceScatter) {
      exchange.sum = call.type;
      exchange.peers.push_back({true, BlockOf(call.input, peer, count), call.output});
    } else {
      exchange.peers.push_back({true, {}, {}});  // a barrier
    }
  }
  return {std::move(exchange)};
}

}  // namespace penstock
