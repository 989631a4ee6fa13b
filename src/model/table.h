// The table of models: one row each. Adding a model is its file and one line in model.cpp.
#pragma once

#include <memory>
#include <string_view>

#include "model/model.h"

namespace penstock {

struct ModelEntry {
  std::string_view name;
  // Refuses sizes this model does not take; what all models ask for is checked before.
  Status (*check)(const ModelConfig& config);
  // Parameters hold anything: BuildStage sets them.
  std::shared_ptr<StageModule> (*build)(const ModelConfig& config, const LayerRange& range);
  // Whether all layers compute the same but for their weights, wherever they stand in the model.
  bool layers_alike = false;
};

extern const ModelEntry kLlama;

}  // namespace penstock
