// The models that --model knows by name.
#pragma once

#include <string_view>
#include <vector>

#include "model_spec/model_shape.h"

namespace penstock {

// All of them, with the sizes of their config.json at Hugging Face.
const std::vector<ModelShape>& PublishedModels();
std::vector<std::string_view> PublishedModelNames();

// Errors: kNotFound, with the nearest name.
Result<ModelShape> FindPublishedModel(std::string_view name);

}  // namespace penstock
