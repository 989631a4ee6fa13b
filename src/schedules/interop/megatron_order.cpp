#include "interop/megatron_order.h"

#include <algorithm>

namespace penstock {

std::vector<ChunkAndMicrobatch> MegatronOrder(int ranks, int chunks, int microbatches,
                                              bool backward) {
  std::vector<ChunkAndMicrobatch> order;
  const int group = chunks == 1 ? microbatches : ranks;
  for (int first = 0; first < microbatches; first += group) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int n = first; n < std::min(first + group, microbatches); ++n) {
        order.push_back({backward ? chunks - 1 - chunk : chunk, n});
      }
    }
  }
  return order;
}

}  // namespace penstock
