// config.json, the configuration of a model in Hugging Face's format. Does not use torch.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model/model_config.h"

namespace penstock {

// The files of a folder with weights: one, or the index of several.
inline constexpr const char* kHuggingFaceWeights = "model.safetensors";
inline constexpr const char* kHuggingFaceIndex = "model.safetensors.index.json";
bool HasHuggingFaceWeights(const std::string& folder);

// Reads config.json, or the one in a folder. Its model_type chooses the model. The length of a
// sequence is not read, because it is the longest that the model can use. Errors: kNotFound or
// kInvalidArgument for a file that is missing or invalid, a model_type that no model has, and a
// value that the model does not support. They name the file and the key.
Result<ModelConfig> ReadHuggingFaceConfig(const std::string& path);

// Returns the text of config.json. Errors: kInvalidArgument for a model that has no such format.
Result<std::string> HuggingFaceConfigText(const ModelConfig& config);

// Returns the name that the format has for a parameter. Errors: kInvalidArgument if it has none.
Result<std::string> HuggingFaceName(const ModelConfig& config, std::string_view parameter);

}  // namespace penstock
