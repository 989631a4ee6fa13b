// The order in which Megatron-LM's schedules run the chunks of a rank.
#pragma once

#include <vector>

namespace penstock {

struct ChunkAndMicrobatch {
  int chunk = 0;
  int microbatch = 0;
};

// Returns the forwards or backwards of a rank in order: groups of as many microbatches as ranks,
// chunk by chunk within a group. Requires: counts of at least 1.
std::vector<ChunkAndMicrobatch> MegatronOrder(int ranks, int chunks, int microbatches,
                                              bool backward);

}  // namespace penstock
