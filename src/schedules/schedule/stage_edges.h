// A flat table of a schedule's stages and their neighbors, for hot loops over actions.
#pragma once

#include <vector>

#include "schedule/deps.h"

namespace penstock {

struct StageEdges {
  int rank = -1;
  int next_rank = -1;      // of the next stage, if on another rank; else -1
  int previous_rank = -1;  // of the previous stage, if on another rank; else -1
  // The ranks from and to which gradients go: as above, unless the stages before lack a backward.
  int gradient_from = -1;  // of the next stage
  int gradient_to = -1;    // of the previous stage
  Neighbors neighbors = {};
};

// Returns one entry per stage.
inline std::vector<StageEdges> EdgesOf(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  const ChainShape shape = ChainShape::Of(schedule);
  std::vector<StageEdges> edges;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    const auto other_rank = [&](int neighbor) {
      const int other = neighbor < 0 ? rank : placement.rank_of(neighbor);
      return other == rank ? -1 : other;
    };
    const Neighbors neighbors = Neighbors::Of(shape, stage);
    const auto reads = [&](int other) {
      return other >= 0 && ReaderOf(schedule, ValueKind::kGradient, other) >= 0;
    };
    edges.push_back({.rank = rank,
                     .next_rank = other_rank(neighbors.next),
                     .previous_rank = other_rank(neighbors.previous),
                     .gradient_from = reads(neighbors.next) ? other_rank(neighbors.next) : -1,
                     .gradient_to = reads(stage) ? other_rank(neighbors.previous) : -1,
                     .neighbors = neighbors});
  }
  return edges;
}

}  // namespace penstock
