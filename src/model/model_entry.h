// The entry of a model: one line of the table in models.def, or one that a program adds.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace penstock {

// Declares that all stages whose range fits have a copy of a parameter under the same name.
struct SharedDeclaration {
  std::string name;
  bool (*held_by)(const LayerRange& range);
  std::string_view instead;  // the setting that avoids it; may be empty
};

struct ModelEntry {
  std::string_view name;
  std::string_view summary;  // one line

  // Returns the model's own fields at their defaults. Empty: it has none.
  std::function<std::unique_ptr<ModelOptions>()> options;
  // Rejects sizes and options that do not fit together; the declarations of single values have been
  // checked before. Empty: all combinations fit. Errors name the key ("model.heads").
  std::function<Status(const ModelConfig& config)> check;
  // Builds a stage. Its parameters need no values, because `initialize` sets them.
  std::function<std::shared_ptr<StageModule>(const ModelConfig& config, const LayerRange& range)>
      build;
  // Sets the initial value of one parameter. The generator is seeded by the configuration's seed
  // and the parameter's name.
  std::function<void(const ModelConfig& config, std::string_view parameter, torch::Tensor& value,
                     const at::Generator& generator)>
      initialize;
  // Returns the parameters that several stages share. Empty: none.
  std::function<std::vector<SharedDeclaration>(const ModelConfig& config)> shared;
  // Whether all layers differ only in their weights, wherever they are in the model.
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
