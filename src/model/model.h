// Models as plain torch::nn code, built one pipeline stage at a time.
//
// Model code knows nothing of pipelines: a stage is a module over a range of layers. A parameter's
// initial value depends on the seed and on its name in the whole model alone, so however a model is
// cut, it is the same model.
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
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

// A stage of a model. forward: token ids [batch, sequence] int64 where the stage has the embedding,
// else hidden states [batch, sequence, dim]; returns hidden states, or logits [batch, sequence,
// vocabulary] where it has the head. Parameters are named as in the whole model
// ("layers.3.wq.weight").
class StageModule : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};

// Refuses an unknown name and sizes that do not fit (heads that do not divide dim, say).
Result<std::shared_ptr<StageModule>> BuildStage(const ModelConfig& config, const LayerRange& range);

}  // namespace penstock
