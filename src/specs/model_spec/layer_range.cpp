#include "model_spec/layer_range.h"

#include "base/divide_layers.h"

namespace penstock {

std::int64_t ContextTokens(std::int64_t tokens, int ranks) {
  if (ranks == 1) return tokens;
  const std::int64_t blocks = 2 * std::int64_t{ranks};
  return 2 * ((tokens + blocks - 1) / blocks);
}

Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts) {
  PENSTOCK_TRY(const std::vector<std::int64_t> lengths, DivideLayers(layers, stages, counts));
  std::vector<LayerRange> ranges;
  std::int64_t begin = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t end = begin + lengths[stage];
    ranges.push_back({begin, end, stage == 0, stage == stages - 1});
    begin = end;
  }
  return ranges;
}

}  // namespace penstock
