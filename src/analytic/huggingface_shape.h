// The architecture that a config.json of Hugging Face's transformers describes.
#pragma once

#include <string>

#include "analytic/model_shape.h"

namespace penstock {

// Reads a config.json, or that of a folder, of one of these model types: llama, qwen3, mixtral,
// qwen3_moe, deepseek_v2, deepseek_v3 and gpt2. Errors: those of ReadFile; kInvalidArgument, naming
// file and key.
Result<ModelShape> ReadHuggingFaceShape(const std::string& path);

// The same from the text of the file.
Result<ModelShape> ParseHuggingFaceShape(std::string_view text);

}  // namespace penstock
