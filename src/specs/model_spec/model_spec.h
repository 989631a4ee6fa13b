// ModelSpec: what a program knows about a model without its code, from the table (models.def) or
// added with a ModelEntry.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model_spec/huggingface_format.h"
#include "model_spec/model_config.h"
#include "model_spec/model_shape.h"

namespace penstock {

// Declares that several stages have a copy of a parameter under the same name.
struct SharedDeclaration {
  std::string name;
  bool (*held_by)(const LayerRange& range);  // whether a stage of this range has a copy
  std::string_view instead;                  // the setting without it; may be empty
};

// A size that ranks divide evenly.
struct DividedSize {
  std::string_view key;  // of its option: "model.heads"
  std::int64_t size = 0;
  bool may_repeat = false;  // fewer may also be divided among more ranks, which then share some
  bool of_experts = false;  // ranks may also have it whole (LayerRange::has_whole_experts)
};

struct ModelSpec {
  std::string_view name;
  std::string_view summary;  // one line

  // Returns the model's own options at their defaults. Empty if it has none.
  std::function<std::unique_ptr<ModelOptions>()> options = {};
  // Returns an error, naming the key ("model.heads"), for sizes and options that cannot be
  // combined. Single values have been checked by their declarations. Empty if all combinations are
  // valid.
  std::function<Status(const ModelConfig& config)> check = {};
  // Returns the parameters that several stages share. Empty if there are none.
  std::function<std::vector<SharedDeclaration>(const ModelConfig& config)> shared = {};
  // Returns whether a parameter has a part per expert, along its first dimension, which the ranks
  // of an expert group divide. Empty if the model has no experts.
  bool (*is_per_expert)(std::string_view parameter) = nullptr;
  // Returns the number of experts of a layer. Empty if the model has none.
  std::function<std::int64_t(const ModelConfig& config)> experts = {};
  // Returns the sizes that ranks divide among themselves if they divide the matrices of layers
  // (LayerRange::tensor_ranks). Empty if the model cannot.
  std::function<std::vector<DividedSize>(const ModelConfig& config)> divided = {};
  // Whether stages can have a part of the tokens of each sample (LayerRange::context_ranks).
  bool divides_samples = false;
  // Returns the first layer from which on all layers differ only in their weights. Empty if they
  // differ in more.
  std::function<std::int64_t(const ModelConfig& config)> first_alike_layer = {};
  // Whether stages separate documents (ModelConfig::document_end). Then a stage also sends the
  // index of the first token of each token's document, [B, S] int64, after its hidden states.
  bool separates_documents = false;
  // Returns the tables of the vocabulary. The stages then support LayerRange::sharded_vocabulary,
  // and the loss is the cross-entropy of the logits. Errors: kInvalidArgument, naming the option
  // that does not allow it. Empty if the model cannot shard its vocabulary.
  std::function<Result<VocabularyTables>(const ModelConfig& config)> vocabulary = {};
  // Returns the sizes that the cost model prices. Empty if it cannot price the model.
  std::function<ModelShape(const ModelConfig& config)> shape = {};
  // Empty (without a model_type) if the model has none.
  HuggingFaceFormat huggingface = {};
};

// Returns the specification of a model, or null if there is none.
const ModelSpec* FindModelSpec(std::string_view name);
// Returns the sizes of a model. Requires: CheckModel succeeds. Errors: kInvalidArgument if the
// model does not declare them.
Result<ModelShape> ShapeOf(const ModelConfig& config);
// Errors: kInvalidArgument if the name is taken. Threads: call it before other threads use models.
Status AddModelSpec(ModelSpec model);

// A value for ModelSpec::options: returns default `Options`.
template <class Options>
std::unique_ptr<ModelOptions> MakeOptions() {
  return std::make_unique<Options>();
}

}  // namespace penstock
