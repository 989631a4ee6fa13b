// Exchange: one rank's part in a direct exchange, in which each rank sends each other rank its
// piece. Every collective is one exchange, or two.
#pragma once

#include <optional>
#include <vector>

#include "collective/rank_group.h"

namespace penstock {

struct Exchange {
  struct Peer {
    bool exchanges = false;  // whether this rank and the peer send each other a piece
    ConstBytes send;         // may be empty
    Bytes receive;           // for a sum, all peers have the same one
  };
  std::vector<Peer> peers;         // by rank; one of them is this rank
  std::optional<ElementType> sum;  // the pieces of all peers are added instead of stored

  int count() const;  // of the peers that exchange
};

// Returns the exchanges of a collective. If there are two, the second one may start when the first
// one is complete. A rank sends (n-1)/n of the data for an all-gather or a reduce-scatter among n
// ranks, and twice that for an all-reduce, which is the least possible.
std::vector<Exchange> ExchangesOf(const CollectiveCall& call, int rank, int ranks);

}  // namespace penstock
