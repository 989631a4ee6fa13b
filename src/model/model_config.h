// What a model is, as plain data, and how its layers are cut into stages. No torch here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct ModelConfig {
  std::string name = "llama";  // in the model table
  std::int64_t vocabulary = 256;
  std::int64_t dim = 128;
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;    // 0: as heads
  std::int64_t hidden = 0;      // of the feed-forward; 0: the model's default for dim
  std::int64_t sequence = 128;  // tokens a sample
  double rope_theta = 10000;
  double norm_epsilon = 1e-5;
  double dropout = 0;  // chance that a number of the residual stream is dropped in training
  std::uint64_t seed = 1;
};

// The part of the model that a stage holds.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // past the last layer
  bool embedding = false;  // reads token ids
  bool head = false;       // ends in logits
};

// Layers over `stages` as even as possible, longer ones first; `counts`, if not empty, says how
// many each stage takes. Refuses fewer layers than stages, and counts that do not add up.
Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts = {});

// Names of the models there are, in the order of the table.
std::vector<std::string_view> ModelNames();

// Refuses an unknown name, and sizes that do not fit (heads that do not divide dim, say).
Status CheckModel(const ModelConfig& config);

}  // namespace penstock
