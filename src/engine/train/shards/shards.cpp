#include "train/shards/shards.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

std::int64_t Align(std::int64_t elements) {
  return (elements + Shards::kAlign - 1) / Shards::kAlign * Shards::kAlign;
}

}  // namespace

Shards::Shards(std::span<const std::int64_t> elements, std::span<const Division> divisions,
               int replicas)
    : replicas_(replicas), starts_(elements.size()), pieces_(Index(replicas)) {
  std::int64_t sharded = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (divisions[i] != Division::kShards) continue;
    starts_[i] = sharded;
    sharded += Align(elements[i]);
  }
  shard_elements_ = Align((sharded + replicas - 1) / replicas);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    for (int replica = 0; replica < replicas && divisions[i] == Division::kShards; ++replica) {
      const std::int64_t first = replica * shard_elements_ - starts_[i];
      const ParameterPiece piece{i, std::max<std::int64_t>(first, 0),
                                 std::min(first + shard_elements_, elements[i])};
      if (piece.size() > 0) pieces_[Index(replica)].push_back(piece);
    }
  }
  end_ = rest();
  for (const Division division : {Division::kWhole, Division::kExperts}) {
    if (division == Division::kExperts) experts_begin_ = end_;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (divisions[i] != division) continue;
      starts_[i] = end_;
      end_ += Align(elements[i]);
      unsharded_.push_back({i, 0, elements[i]});
    }
  }
}

}  // namespace penstock
