// Which of the engine's models has the sizes of a plan.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_spec/model_config.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Returns the configuration of a model with these sizes: the one of a config.json if `source` is
// the path of one, otherwise of the first model that can have them, with its usual constants.
// Errors: kInvalidArgument if there is none.
Result<ModelConfig> EngineModelOf(const ModelShape& shape, const std::string& source,
                                  std::int64_t sequence);

}  // namespace penstock
