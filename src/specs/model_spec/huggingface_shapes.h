// Sizes of models that can be priced but not trained here, from their config.json: GPT-OSS, Qwen2,
// Qwen3-Next, Gemma 3, Mistral, Kimi K2 and Nemotron-H.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_spec/model_shape.h"

namespace penstock {

std::vector<std::string_view> HuggingFaceShapeTypes();

// Reads the keys of a config.json of one of these model_types. Missing keys have the defaults of
// the transformers package if published files lack them. Errors: kInvalidArgument about a key that
// is missing or has a value that is not supported.
Result<ModelShape> ReadHuggingFaceSizes(std::string_view model_type, const nlohmann::json& values);

}  // namespace penstock
