// Schedule: who computes which microbatch when, as plain data.
//
// A lane is one rank's actions in order. Validator, simulator, planner, report and runtime all read
// this.
#pragma once

#include <cstddef>
#include <cstdint>
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

// What a stage runs of the backward (untrained.h).
enum class StageBackward : std::uint8_t {
  kWhole,     // I and W, or B: it trains its weights
  kAdapters,  // I, which also computes the gradients of its adapters
  kInput,     // I: nothing of it is trained, but a stage before it is
  kNone,      // F only: nothing of it or before it is trained
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
  // By stage of the model. Empty: kWhole.
  std::vector<StageBackward> backward = {};
  std::vector<Lane> lanes;  // one per rank

  int ranks() const { return placement.ranks(); }
  int stages() const { return placement.stages(); }
  StageBackward backward_of(int stage) const {
    if (backward.empty()) return StageBackward::kWhole;
    return backward[static_cast<std::size_t>(placement.model_stage(stage))];
  }
  // Number of microbatch indices in one chain: Part::microbatch is 0 to indices()-1.
  int indices() const { return microbatches / placement.replicas() * slices * steps; }
  std::size_t action_count() const {
    std::size_t count = 0;
    for (const Lane& lane : lanes) count += lane.size();
    return count;
  }
};

}  // namespace penstock
