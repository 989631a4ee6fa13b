// The names that frameworks have for models.
#pragma once

#include <string_view>

#include "model_spec/model_shape.h"

namespace penstock {

struct KnownModel {
  std::string_view published;        // of PublishedModels()
  std::string_view titan_name = {};  // module and flavor of torchtitan; empty: none
  std::string_view titan_flavor = {};
  std::string_view bridge_recipe = {};  // of Megatron-Bridge; empty: none
  // Whether the recipe has a CommOverlapConfig and a MixedPrecisionConfig, whose fields can be set.
  bool has_overlap = false, has_precision = false;
};

// Returns the model of these sizes, whatever its name and however many further tokens it predicts,
// or null.
const KnownModel* FindKnownModel(const ModelShape& shape);

}  // namespace penstock
