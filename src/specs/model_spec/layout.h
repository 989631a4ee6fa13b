// Which layers each pipeline stage has, in the ways in which frameworks write it.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_spec/layer_range.h"

namespace penstock {

struct LayoutSize {
  std::int64_t layers = 1;
  std::int64_t predictors = 0;  // layers that predict further tokens
  int stages = 1;
};

// Reads one of
//   8,10,10,8                          layers per stage; 0 is an empty stage
//   Et*3|(tt|)*29,m|L                  Megatron-LM's pipeline_model_parallel_layout
//   [["tok_embeddings", "layers.0"],   torchtitan's module_fqns_per_model_part
//    ["layers.1", "norm", "output"]]
// Errors: kInvalidArgument for another number of stages or layers, for layers that are missing,
// repeated or out of order, and for text that is none of these.
Result<std::vector<LayerRange>> ParseLayout(std::string_view text, const LayoutSize& size);

}  // namespace penstock
