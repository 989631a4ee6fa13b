// A schedule's stages and where their neighbours are, flat: what a hot loop over actions asks for.
#pragma once

#include <vector>

#include "schedule/deps.h"

namespace penstock {

struct StageEdges {
  int rank = -1;
  int next_rank = -1;      // of the stage behind it, where that is another rank's; else -1
  int previous_rank = -1;  // of the stage before it, where that is another rank's; else -1
  Neighbours neighbours = {};
};

// One entry a stage.
inline std::vector<StageEdges> EdgesOf(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  const ChainShape shape = ChainShape::Of(schedule);
  std::vector<StageEdges> edges;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = placement.rank_of(stage);
    const auto other_rank = [&](int neighbour) {
      const int other = neighbour < 0 ? rank : placement.rank_of(neighbour);
      return other == rank ? -1 : other;
    };
    const Neighbours neighbours = Neighbours::Of(shape, stage);
    edges.push_back(
        {rank, other_rank(neighbours.next), other_rank(neighbours.previous), neighbours});
  }
  return edges;
}

}  // namespace penstock
