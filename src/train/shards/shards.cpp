#include "train/shards/shards.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

std::int64_t Align(std::int64_t elements) {
  return (elements + Shards::kAlign - 1) / Shards::kAlign * Shards::kAlign;
}

}  // namespace

Shards::Shards(std::span<const std::int64_t> elements, const std::vector<bool>& shared,
               int replicas)
    : replicas_(replicas), starts_(elements.size()), pieces_(Index(replicas)) {
  std::int64_t sharded = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (shared[i]) continue;
    starts_[i] = sharded;
    sharded += Align(elements[i]);
  }
  shard_elements_ = Align((sharded + replicas - 1) / replicas);
  end_ = rest();
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (shared[i]) {
      starts_[i] = end_;
      end_ += Align(elements[i]);
      unsharded_.push_back({i, 0, elements[i]});
      continue;
    }
    for (int replica = 0; replica < replicas; ++replica) {
      const std::int64_t first = replica * shard_elements_ - starts_[i];
      const Piece piece{i, std::max<std::int64_t>(first, 0),
                        std::min(first + shard_elements_, elements[i])};
      if (piece.size() > 0) pieces_[Index(replica)].push_back(piece);
    }
  }
}

}  // namespace penstock
