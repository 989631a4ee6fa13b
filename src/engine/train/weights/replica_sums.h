// ReplicaSums: adds the gradients of a stage's replicas, and collects their losses. Private to
// train/. Threads: as StageWeights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/message.h"
#include "train/shards/shards.h"
#include "train/weights/gradient_memory.h"
#include "train/weights/replica_division.h"
#include "train/weights/step_losses.h"

namespace penstock {

class ReplicaSums {
 public:
  // `losses` are sent after the gradients. All must outlive the object.
  ReplicaSums(const ReplicaDivision& division, const Shards& shards,
              const GradientMemory& gradients, const StepLosses& losses);

  // As StageUpdate's.
  Message Share(int to_chain);
  void Take(int chain, Message gradients);
  void Sum();

  // Returns the losses of another chain. Valid after Sum().
  std::span<const float> LossesOf(int chain) const { return losses_of_[chain].Read(); }

 private:
  // A range of the gradients, and its place in messages between replicas. In elements.
  struct Range {
    std::int64_t begin, size, in_message;
  };
  // The ranges that the replica in a chain receives from the one in another.
  std::vector<Range> RangesOf(int chain, int from) const;
  static std::int64_t ElementsOf(std::span<const Range> ranges) {
    return ranges.empty() ? 0 : ranges.back().in_message + ranges.back().size;
  }

  const ReplicaDivision& division_;
  const Shards& shards_;
  const GradientMemory& gradients_;
  const StepLosses& losses_;
  std::vector<at::Tensor> outgoing_;   // by shard; replicas read it; reused after all have read it
  std::vector<at::Tensor> incoming_;   // by chain
  std::vector<StepLosses> losses_of_;  // by chain
};

}  // namespace penstock
