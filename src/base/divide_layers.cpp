#include "base/divide_layers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace penstock {

Result<std::vector<std::int64_t>> DivideLayers(std::int64_t layers, int stages,
                                               std::span<const std::int64_t> counts) {
  if (stages < 1) return InvalidArgument("a model has at least 1 stage, not {}", stages);
  if (layers < stages) {
    return InvalidArgument(
        "{} layers cannot fill {} stages; give more layers, or fewer ranks or chunks", layers,
        stages);
  }
  std::vector<std::int64_t> lengths(counts.begin(), counts.end());
  if (lengths.empty()) {
    for (int stage = 0; stage < stages; ++stage) {
      lengths.push_back(layers / stages + (stage < layers % stages ? 1 : 0));
    }
  }
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (static_cast<int>(lengths.size()) != stages || sum != layers ||
      std::any_of(lengths.begin(), lengths.end(), [](std::int64_t count) { return count < 1; })) {
    return InvalidArgument(
        "layers per stage are [{}]; {} stages need {} numbers of at least 1 that add up to {}",
        fmt::join(lengths, ", "), stages, stages, layers);
  }
  return lengths;
}

}  // namespace penstock
