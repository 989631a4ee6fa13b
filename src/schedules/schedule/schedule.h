// Schedule: who computes which microbatch when, as plain data.
//
// A lane is one rank's actions in order. Validator, simulator, planner, report and runtime all read
// this.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "schedule/action.h"
#include "schedule/placement.h"

namespace penstock {

using Lane = std::vector<Action>;

// The version of the weights that the forward and backward of a microbatch read.
enum class WeightPolicy {
  kFlush,           // synchronous: all microbatches of a batch read the same weights
  kStashed,         // PipeDream: the backward reads its forward's version, which is stashed
  kDoubleBuffered,  // PipeDream-2BW: batch t reads W(t-1)
};

struct Schedule {
  std::string algorithm;  // name in the catalog, or the file's
  Placement placement;
  int microbatches = 0;  // of one batch, over all chains
  int slices = 1;  // pieces of a microbatch along the sequence; slice j of n has index n*slices + j
  int steps = 1;   // batches that the lanes hold
  WeightPolicy weights = WeightPolicy::kFlush;
  // Whether embedding, head and loss are sharded over the ranks (vocabulary.h): each rank then runs
  // EMBED, S, T and EMBED_GRAD of every microbatch.
  bool vocabulary = false;
  // For each parameter that several stages of a chain hold a copy of: these stages, in ascending
  // order. Their gradients are added up before they step.
  std::vector<std::vector<int>> shared = {};
  std::vector<Lane> lanes;  // one per rank

  int ranks() const { return placement.ranks(); }
  int stages() const { return placement.stages(); }
  // Number of microbatch indices in one chain: Part::microbatch is 0 to indices()-1.
  int indices() const { return microbatches / placement.replicas() * slices * steps; }
  std::size_t action_count() const {
    std::size_t count = 0;
    for (const Lane& lane : lanes) count += lane.size();
    return count;
  }
};

}  // namespace penstock
