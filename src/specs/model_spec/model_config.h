// A model's configuration as plain data.
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
#include "model_spec/layer_range.h"

namespace penstock {

struct ModelConfig {
  std::string name = "llama";  // of a model in models.def or added by AddModel
  std::int64_t vocabulary = 256;
  std::int64_t dim = 128;  // of the hidden states
  std::int64_t layers = 4;
  std::int64_t sequence = 128;  // tokens per sample
  std::uint64_t seed = 1;
  // The token that ends a document. Then tokens attend only to their own document, and their
  // positions are those in it. -1: the documents in a sequence are one text.
  std::int64_t document_end = -1;
  // The model's own options (ModelOptions) as text by key. A missing option has its default.
  std::map<std::string, std::string, std::less<>> options = {};
};

// The options that one model has in addition to ModelConfig: a struct with the values, and their
// declarations.
class ModelOptions {
 public:
  virtual ~ModelOptions() = default;
  // Returns the declarations, which point to members of this object.
  virtual std::vector<Field> Fields() = 0;
  // Sets automatic options to their values, and options that do not change what a trained model
  // computes to one value. Two models whose options are then equal compute the same.
  virtual void Resolve(const ModelConfig&) {}
};

// An upper limit of every size, so that products of several sizes fit in 64 bits.
inline constexpr double kMostModelSize = 1e9;
inline constexpr FieldRange kModelSize = {.least = 1, .most = kMostModelSize};
inline constexpr FieldRange kModelCount = {.most = kMostModelSize};
inline constexpr FieldRange kAutomaticModelSize = {.most = kMostModelSize, .automatic = true};

// Sets `options` from config.options. Errors: kInvalidArgument for an unknown key or an invalid
// value.
Status ReadOptions(const ModelConfig& config, ModelOptions& options);

// Returns the configuration's options as the struct that declares them. Requires: CheckModel
// succeeds.
template <class Options>
Options OptionsOf(const ModelConfig& config) {
  Options options;
  const Status read = ReadOptions(config, options);
  PENSTOCK_CHECK(read, "{}", read.error().line());
  return options;
}

// Returns the default options of the model with this name, or null if there is none.
std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model);

// The names of a model's embedding and head, both [vocabulary, dim] without a bias. The same name
// if they are tied.
struct VocabularyTables {
  std::string embedding, head;

  // Returns both, or one if they are tied.
  std::vector<std::string> names() const {
    return embedding == head ? std::vector{embedding} : std::vector{embedding, head};
  }
};
// Errors: kInvalidArgument, in one line, if the model's vocabulary cannot be sharded.
Result<VocabularyTables> VocabularyTablesOf(const ModelConfig& config);

// A parameter that several stages have copies of, under the same name. The copies start equal and
// stay equal, because each is updated by the sum of their gradients.
struct SharedParameter {
  std::string name;
  std::vector<int> stages;   // two or more, in ascending order
  std::string_view instead;  // the setting without it ("model.tied=false")
};

// Returns the parameters that stages of these ranges share. Requires: CheckModel succeeds.
std::vector<SharedParameter> SharedParameters(const ModelConfig& config,
                                              std::span<const LayerRange> ranges);

// Checks that `ranks` ranks can divide the experts of a layer. Errors: kInvalidArgument.
Status CheckExpertRanks(const ModelConfig& config, int ranks);
// Checks that `ranks` ranks can divide the matrices of a layer, except for experts if they have
// whole ones. Errors: kInvalidArgument.
Status CheckTensorRanks(const ModelConfig& config, int ranks, bool has_whole_experts = false);
// Returns whether a parameter has a part per expert (ModelEntry::is_per_expert).
bool IsPerExpert(const ModelConfig& config, std::string_view parameter);

// Returns whether a parameter is the bias of a router's choice (model.balance=bias). Its gradient
// is the number of rows of each expert minus the mean. It is not a gradient of the loss, so it
// counts in no norm and only its sign is used.
inline bool IsRouterBias(std::string_view parameter) { return parameter.ends_with("router.bias"); }

// Returns the names of all models: the models in models.def, then the ones that AddModel added.
std::vector<std::string_view> ModelNames();
// Returns the summary of the model with this name, or an empty text if there is none.
std::string_view ModelSummary(std::string_view name);

// Errors: kInvalidArgument for an unknown name, an unknown option, or sizes and options that cannot
// be combined, such as heads that do not divide dim.
Status CheckModel(const ModelConfig& config);

}  // namespace penstock
