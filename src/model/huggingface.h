// config.json, the configuration of a model in Hugging Face's format. Does not use torch.
#pragma once

#include <string>

#include "base/result.h"
#include "model/model_config.h"

namespace penstock {

// Reads config.json, or the one in a folder. Its model_type chooses the model. The length of a
// sequence is not read, because it is the longest that the model can use, unless the model has
// weights for it (gpt2). Errors: kNotFound or kInvalidArgument for a file that is missing or
// invalid, a model_type that no model has, and a value that the model does not support. They name
// the file and the key.
Result<ModelConfig> ReadHuggingFaceConfig(const std::string& path);

// Returns the text of config.json. Errors: kInvalidArgument for a model that has no such format.
Result<std::string> HuggingFaceConfigText(const ModelConfig& config);

}  // namespace penstock
