// config.json, the configuration of a model in Hugging Face's format.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "model_spec/huggingface_format.h"
#include "model_spec/model_config.h"
#include "model_spec/model_shape.h"

namespace penstock {

// The files of a folder with weights: one, or the index of several.
inline constexpr const char* kHuggingFaceWeights = "model.safetensors";
inline constexpr const char* kHuggingFaceIndex = "model.safetensors.index.json";
bool HasHuggingFaceWeights(const std::string& folder);
// Returns whether a path is a folder with a config.json.
bool IsHuggingFaceFolder(const std::string& path);

// Reads config.json, or the one in a folder. Its model_type chooses the model. The length of a
// sequence is not read, because it is the longest that the model can use. Errors: kNotFound or
// kInvalidArgument for a file that is missing or invalid, a model_type that no model has, and a
// value that the model does not support. They name the file and the key. Missing keys have the
// defaults of the class in the transformers package. Names keys that the class does not know in a
// line on stderr.
Result<ModelConfig> ReadHuggingFaceConfig(const std::string& path);

// Reads the sizes of the model of a config.json, or of the one in a folder. Errors: likewise.
Result<ModelShape> ReadHuggingFaceShape(const std::string& path);
// Does likewise for the text of a file.
Result<ModelShape> ParseHuggingFaceShape(std::string_view text);

// Returns the text of config.json. Errors: kInvalidArgument for a model that has no such format, or
// options that the format cannot express, which they name.
Result<std::string> HuggingFaceConfigText(const ModelConfig& config);

// What a parameter is in the format: one tensor, or one per expert.
struct HuggingFaceName {
  std::string name;
  TensorLayout layout = TensorLayout::kSame;

  // The name of an expert's tensor. Requires: layout is kPerExpert.
  std::string OfExpert(std::int64_t expert) const;
};
// Errors: kInvalidArgument if the model has no format, or no such parameter.
Result<HuggingFaceName> HuggingFaceNameOf(const ModelConfig& config, std::string_view parameter);

}  // namespace penstock
