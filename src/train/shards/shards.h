// Shards: how the parameters of a stage are divided among its replicas. Private to train/.
//
// The parameters that no other stage shares form one sequence of elements, each parameter starting
// at a multiple of kAlign. The sequence is divided into equal ranges, one per replica; a range that
// ends inside a parameter divides it. Parameters that stages share follow. They are in no shard:
// every replica updates all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

class Shards {
 public:
  static constexpr std::int64_t kAlign = 64;  // elements: a cache line at least

  // A range of elements of one parameter, in memory order.
  struct Piece {
    std::size_t parameter = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t size() const { return end - begin; }
  };

  // `elements` and `shared` are by parameter. With one replica, everything is in its shard.
  Shards(std::span<const std::int64_t> elements, const std::vector<bool>& shared, int replicas);

  // The first element of each parameter in the sequence, and the end of all of them.
  std::int64_t start(std::size_t parameter) const { return starts_[parameter]; }
  std::int64_t end() const { return end_; }
  std::size_t parameters() const { return starts_.size(); }
  int shards() const { return replicas_; }
  bool sharded(std::size_t parameter) const { return starts_[parameter] < rest(); }
  // The position of a piece of a shard in that shard.
  std::int64_t InShard(const Piece& piece) const {
    return (starts_[piece.parameter] + piece.begin) % shard_elements_;
  }
  // The elements of each shard, and the first element after the last shard.
  std::int64_t shard_elements() const { return shard_elements_; }
  std::int64_t rest() const { return shard_elements_ * replicas_; }
  // The pieces of a shard, in the order of the parameters.
  const std::vector<Piece>& pieces(int replica) const { return pieces_[replica]; }
  // The parameters in no shard.
  const std::vector<Piece>& unsharded() const { return unsharded_; }

 private:
  int replicas_;
  std::vector<std::int64_t> starts_;
  std::int64_t end_ = 0;
  std::int64_t shard_elements_ = 0;
  std::vector<std::vector<Piece>> pieces_;  // by replica
  std::vector<Piece> unsharded_;
};

}  // namespace penstock
