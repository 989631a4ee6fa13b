// The layers of stages, as frameworks write them. ParseLayout (model_spec/layout.h) reads both.
#pragma once

#include <span>
#include <string>

#include "model_spec/layer_range.h"

namespace penstock {

// Returns pipeline_model_parallel_layout of Megatron-LM: "Et*3|(t*4|)*6t*3L".
std::string MegatronLayoutOf(std::span<const LayerRange> stages);

// Returns module_fqns_per_model_part of torchtitan, with one stage per line.
std::string ModuleListsOf(std::span<const LayerRange> stages);

}  // namespace penstock
