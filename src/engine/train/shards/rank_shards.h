// RankShards: what the stages of one rank have in common when they hold weights, gradients and
// optimizer state: the bytes, and the reduction in flight. Threads: the rank's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "graph/ops/collective.h"

namespace penstock {

class ShardCollectives;

// An amount of memory, in bytes.
class HeldBytes {
 public:
  void Add(std::int64_t bytes) {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  void Free(std::int64_t bytes) { held_ -= bytes; }
  std::int64_t held() const { return held_; }
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t held_ = 0, peak_ = 0;
};

struct RankShards {
  HeldBytes weights;    // what stages compute with and what they train
  HeldBytes gradients;  // accumulated
  HeldBytes optimizer;  // state
  // Whose gradients are being reduced. The next REDUCE_GRAD of the rank first waits for it, so at
  // most one reduction is in flight and its memory is freed at a point that the schedule
  // determines.
  ShardCollectives* reducing = nullptr;
  // The ranks that divide the experts; null if none do.
  std::unique_ptr<GroupEnd> experts;
  // The ranks that divide the matrices, and the tokens of samples; null if none do.
  std::unique_ptr<GroupEnd> tensor, context;
};

}  // namespace penstock
