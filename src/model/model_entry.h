// A model as Penstock knows it: one row of the table in models.def, or one that a program adds.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace penstock {

// Declares that all stages whose range fits hold a copy of a parameter, by its one name.
struct SharedDeclaration {
  std::string name;
  bool (*held_by)(const LayerRange& range);
  std::string_view instead;  // what configures the model without it; may be empty
};

struct ModelEntry {
  std::string_view name;
  std::string_view summary;  // one line

  // The model's own fields, at their defaults. Empty: it has none.
  std::function<std::unique_ptr<ModelOptions>()> options;
  // Refuses sizes and options that do not fit together; single values are checked before it, by
  // their declarations. Empty: all fit. Errors name the key ("model.heads").
  std::function<Status(const ModelConfig& config)> check;
  // Makes a stage. Its parameters need no values: `initialize` sets them.
  std::function<std::shared_ptr<StageModule>(const ModelConfig& config, const LayerRange& range)>
      build;
  // Sets the initial value of one parameter. The generator is the parameter's own, seeded by the
  // configuration's seed and the parameter's name.
  std::function<void(const ModelConfig& config, std::string_view parameter, torch::Tensor& value,
                     const at::Generator& generator)>
      initialize;
  // The parameters that several stages hold. Empty: none.
  std::function<std::vector<SharedDeclaration>(const ModelConfig& config)> shared;
  // Whether all layers compute the same but for their weights, wherever they are in the model.
  bool layers_alike = false;
};

// Adds a model of the embedding program: configurations then name it as they name ours.
// Ownership: what string views refer to lives as long as the program.
// Threads: before any other thread uses models.
// Errors: kInvalidArgument where it has no name, no `build` or no `initialize`, or where the name
// is taken.
Status AddModel(ModelEntry model);

// Makes options of a type that declares them.
template <class Options>
std::unique_ptr<ModelOptions> MakeOptions() {
  return std::make_unique<Options>();
}

}  // namespace penstock
