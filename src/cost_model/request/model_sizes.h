// Models by their sizes.
#pragma once

#include <optional>
#include <string_view>

#include "cost_model/request/model_request.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Models that only sizes describe: a decoder with RMSNorm, rotary positions and gated feed-forward
// layers, and GPT with LayerNorm, learned positions, GELU and biases.
inline constexpr std::string_view kUnnamedModels[] = {"decoder", "gpt"};

// Returns a model without sizes, if the name is one of the above.
std::optional<ModelShape> ShapeWithoutName(std::string_view name);

// Replaces sizes of a model by the given ones; sizes that depend on these follow as they usually
// do. Errors: kInvalidArgument about the field, or about a missing field.
Status SetSizes(const ModelRequest& request, ModelShape& shape);

}  // namespace penstock
