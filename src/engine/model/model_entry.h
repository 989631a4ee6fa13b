// ModelEntry: a model in the table (models.def) or added by a program.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string_view>

#include "model/model.h"
#include "model_spec/model_spec.h"

namespace penstock {

// The specification of a model and its code.
struct ModelEntry : ModelSpec {
  // Builds a stage. Need not set the values of parameters.
  std::function<std::shared_ptr<StageModule>(const ModelConfig& config, const LayerRange& range)>
      build;
  // Sets the initial value of one parameter. The generator is seeded by config.seed and the
  // parameter's name.
  std::function<void(const ModelConfig& config, std::string_view parameter, torch::Tensor& value,
                     const at::Generator& generator)>
      initialize;
};

// Returns the entry of a model, or null if there is none.
const ModelEntry* FindModelEntry(std::string_view name);

// Adds a model, which configurations can then name.
// Ownership: string views in `model` must refer to memory that lives until the end of the program.
// Threads: call it before any other thread uses models.
// Errors: kInvalidArgument if the name is empty or taken, or if `build` or `initialize` is empty.
Status AddModel(ModelEntry model);

}  // namespace penstock
