// What the recipes of Megatron-Bridge set that its performance pages do not print.
#pragma once

#include <string>
#include <string_view>

#include "calibrate/formats/format.h"

namespace penstock {

struct BridgeRun {
  std::string_view model, device, precision;
  std::string_view release;  // "2026-02"
  bool shards_weights = false;
};

// Values of fields; empty ones keep the default.
struct BridgeRecipe {
  std::string_view graphs = "none";
  std::string_view dispatcher = "hybridep";  // of models with experts
  std::string_view recompute = {};
  bool has_experts = false;
  bool fused_experts = false;
  bool overlapped_experts = false;
  bool fp8_attention = false;
  int offloaded_layers = 0;
  int plain_layers_at_end = 0;  // in bf16
};

struct BridgeStages {
  std::string_view model;
  int ranks = 1, chunks = 1;
};
// Sets which layers each stage has, if the stages do not divide them. Errors: kInvalidArgument
// about a column of the row.
Status SetLayout(const CsvRow& row, const BridgeStages& stages, RunTexts& texts);

BridgeRecipe BridgeRecipeOf(const BridgeRun& run);
void SetRecipe(const BridgeRecipe& recipe, RunTexts& texts);

}  // namespace penstock
