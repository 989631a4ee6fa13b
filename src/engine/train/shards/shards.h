// Shards: how the parameters of a stage are divided among its replicas. Private to train/.
//
// The parameters that no other stage shares form one sequence of elements, each parameter starting
// at a multiple of kAlign. The sequence is divided into equal ranges, one per replica; a range that
// ends inside a parameter divides it. The others are in no shard and follow: parameters that stages
// share, which every replica updates, then experts, which differ by replica.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

// How the replicas of a stage divide a parameter.
enum class Division : std::uint8_t {
  kShards,   // into ranges of elements
  kWhole,    // every replica has all of it
  kExperts,  // every replica has some experts; those with the same ones are equal
};

class Shards {
 public:
  static constexpr std::int64_t kAlign = 64;  // elements: a cache line at least

  // A range of elements of one parameter, in memory order.
  struct ParameterPiece {
    std::size_t parameter = 0;
    std::int64_t begin = 0, end = 0;
    std::int64_t size() const { return end - begin; }
  };

  // `elements` and `divisions` are by parameter. With one replica, everything is in its shard.
  Shards(std::span<const std::int64_t> elements, std::span<const Division> divisions, int replicas);

  // The first element of each parameter in the sequence, and the end of all of them.
  std::int64_t start(std::size_t parameter) const { return starts_[parameter]; }
  std::int64_t end() const { return end_; }
  std::size_t parameters() const { return starts_.size(); }
  int shards() const { return replicas_; }
  bool sharded(std::size_t parameter) const { return starts_[parameter] < rest(); }
  // The position of a piece of a shard in that shard.
  std::int64_t InShard(const ParameterPiece& piece) const {
    return (starts_[piece.parameter] + piece.begin) % shard_elements_;
  }
  // The elements of each shard, and the first element after the last shard.
  std::int64_t shard_elements() const { return shard_elements_; }
  std::int64_t rest() const { return shard_elements_ * replicas_; }
  // The pieces of a shard, in the order of the parameters.
  const std::vector<ParameterPiece>& pieces(int replica) const { return pieces_[replica]; }
  // The parameters in no shard, experts' last. These begin at this element.
  const std::vector<ParameterPiece>& unsharded() const { return unsharded_; }
  std::int64_t experts_begin() const { return experts_begin_; }
  bool has_experts() const { return experts_begin_ < end_; }
  bool is_of_experts(std::size_t parameter) const { return starts_[parameter] >= experts_begin_; }

 private:
  int replicas_;
  std::vector<std::int64_t> starts_;
  std::int64_t experts_begin_ = 0;
  std::int64_t end_ = 0;
  std::int64_t shard_elements_ = 0;
  std::vector<std::vector<ParameterPiece>> pieces_;  // by replica
  std::vector<ParameterPiece> unsharded_;
};

}  // namespace penstock
