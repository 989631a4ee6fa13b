// A model's configuration as plain data, and the partition of its layers into stages. No torch
// here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text/fields.h"

namespace penstock {

struct ModelConfig {
  std::string name = "llama";  // in the model table
  std::int64_t vocabulary = 256;
  std::int64_t dim = 128;  // of the hidden states
  std::int64_t layers = 4;
  std::int64_t sequence = 128;  // tokens per sample
  std::uint64_t seed = 1;
  // The options that only this model has, as text by key (ModelOptions). Missing ones have their
  // defaults.
  std::map<std::string, std::string, std::less<>> options = {};
};

// The fields of one model in addition to those of ModelConfig: a struct with its values and their
// declarations.
class ModelOptions {
 public:
  virtual ~ModelOptions() = default;
  // The fields refer to members of this object.
  virtual std::vector<Field> Fields() = 0;
};

// Keeps products of a few sizes within 64 bits, and is larger than any model.
inline constexpr double kMostModelSize = 1e9;

// Sets the fields from the keys of `options`. Errors: kInvalidArgument for a key that the model
// does not have and for an invalid value.
Status ReadOptions(const ModelConfig& config, ModelOptions& options);

// Returns the configuration's options as the struct that declares them. Requires: CheckModel has
// passed.
template <class Options>
Options OptionsOf(const ModelConfig& config) {
  Options options;
  const Status read = ReadOptions(config, options);
  PENSTOCK_CHECK(read, "{}", read.error().message);
  return options;
}

// Returns the options of the model with this name, all at their defaults; null if there is none.
std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model);

// The part of the model that a stage contains.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // past the last layer
  bool embedding = false;  // takes token ids
  bool head = false;       // returns logits
};

// Partitions layers into `stages` as evenly as possible, longer stages first, or by `counts` if it
// is not empty. Rejects fewer layers than stages, and counts that do not add up.
Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts = {});

// A parameter of which several stages have a copy under the same name. The copies start equal, and
// the sum of their gradients keeps them equal.
struct SharedParameter {
  std::string name;
  std::vector<int> stages;   // two or more, in ascending order
  std::string_view instead;  // the setting that avoids it ("model.tied=false")
};

// Returns the parameters that stages of these ranges share. Requires: CheckModel has passed.
std::vector<SharedParameter> SharedParameters(const ModelConfig& config,
                                              std::span<const LayerRange> ranges);

// Returns the names of all models: those of the table, then those added by AddModel.
std::vector<std::string_view> ModelNames();
// Returns one line about the model with this name; empty if there is none.
std::string_view ModelSummary(std::string_view name);

// Rejects an unknown name, and sizes and options that do not fit together (for example, heads that
// do not divide dim).
Status CheckModel(const ModelConfig& config);

}  // namespace penstock
