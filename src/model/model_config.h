// What a model is, as plain data, and how its layers are divided into stages. No torch here.
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
  // What this model alone is configured by, as text by key (ModelOptions). Missing ones have their
  // defaults.
  std::map<std::string, std::string, std::less<>> options = {};
};

// The fields of one model beside those of ModelConfig: a struct with its values and their
// declarations.
class ModelOptions {
 public:
  virtual ~ModelOptions() = default;
  // They refer to members of this object.
  virtual std::vector<Field> Fields() = 0;
};

// So that a few of them fit into 64 bits together; larger than any model.
inline constexpr double kMostModelSize = 1e9;

// Sets what the configuration says, in keys of `options`. Errors: kInvalidArgument for a key that
// the model does not have and for a value that it does not take.
Status ReadOptions(const ModelConfig& config, ModelOptions& options);

// The configuration's options as the struct that declares them. Requires: CheckModel has passed.
template <class Options>
Options OptionsOf(const ModelConfig& config) {
  Options options;
  const Status read = ReadOptions(config, options);
  PENSTOCK_CHECK(read, "{}", read.error().message);
  return options;
}

// The options of the model of this name, all at their defaults; null where there is none.
std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model);

// The part of the model that a stage holds.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;    // past the last layer
  bool embedding = false;  // reads token ids
  bool head = false;       // ends in logits
};

// Divides layers into `stages` as evenly as possible, longer ones first; `counts`, if not empty,
// says how many each stage takes. Refuses fewer layers than stages, and counts that do not add up.
Result<std::vector<LayerRange>> SplitLayers(std::int64_t layers, int stages,
                                            std::span<const std::int64_t> counts = {});

// A parameter that several stages hold a copy of, each under its one name. The copies start equal,
// and the sum of their gradients keeps them equal.
struct SharedParameter {
  std::string name;
  std::vector<int> stages;   // two or more, in ascending order
  std::string_view instead;  // what configures the model without it ("model.tied=false")
};

// The parameters that stages of these ranges share. Requires: CheckModel has passed.
std::vector<SharedParameter> SharedParameters(const ModelConfig& config,
                                              std::span<const LayerRange> ranges);

// Names of all models, those of the table first, then those that AddModel has added.
std::vector<std::string_view> ModelNames();
// One line about the model of this name; empty where there is none.
std::string_view ModelSummary(std::string_view name);

// Refuses an unknown name, and sizes and options that do not fit (heads that do not divide dim,
// say).
Status CheckModel(const ModelConfig& config);

}  // namespace penstock
