// Eager 1F1B: 1F1B with twice the warm-up, so that transfers between ranks overlap with compute.
//
//   rank 0 of 3, m = 6   F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5
//   rank 2 of 3          F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
//
// It is faster than 1F1B if transfers take time, and needs up to twice the memory.
// Zhuang et al., On Optimizing the Communication of Model Parallelism, MLSys 2023, section 4.
#include "eager_1f1b.h"

#include <algorithm>

namespace {

penstock::Schedule Generate(const penstock::ScheduleParams& params) {
  penstock::Schedule schedule;
  schedule.placement = penstock::Placement::Linear(params.ranks);
  schedule.microbatches = params.microbatches;
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int ahead = std::min(params.microbatches, 2 * (params.ranks - 1 - rank));
    penstock::Lane& lane = schedule.lanes.emplace_back();
    for (int i = 0; i < params.microbatches + ahead; ++i) {
      if (i < params.microbatches) lane.push_back(penstock::Forward(rank, i));
      if (i >= ahead) lane.push_back(penstock::Backward(rank, i - ahead));
    }
  }
  return schedule;
}

}  // namespace

penstock::Algorithm Eager1f1b() {
  penstock::Algorithm algorithm;
  algorithm.name = "eager-1f1b";
  algorithm.summary = "1f1b with twice the warm-up, which hides transfers";
  algorithm.memory = "min(m, 2p-1)";
  algorithm.source = "Zhuang et al., MLSys 2023, section 4";
  algorithm.generate = Generate;
  algorithm.closed_form = [](const penstock::ScheduleParams& params) {
    return penstock::ClosedForm{.makespan = {},
                                .peak_memory = std::min(params.microbatches, 2 * params.ranks - 1)};
  };
  return algorithm;
}
