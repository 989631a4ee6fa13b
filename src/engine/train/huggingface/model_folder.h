// ModelFolder: a model in Hugging Face's format with its tokenizer, for evaluation and generation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokens/kinds/open_tokenizer.h"
#include "train/evaluation/language_model.h"
#include "train/huggingface/weights.h"

namespace penstock {

class ModelFolder {
 public:
  // Reads the configuration, the tokenizer, which is bytes if the folder has none, and the headers
  // of the weights. Errors: kNotFound or kInvalidArgument, also if the tokenizer has more tokens
  // than the model.
  static Result<ModelFolder> Open(const std::string& folder);

  const OpenedTokenizer& tokenizer() const { return tokenizer_; }
  // Returns lines for the user, as FitModel.
  const std::vector<std::string>& notes() const { return notes_; }
  // Returns the number of learned positions, which no sequence can exceed; nothing if the model has
  // none.
  std::optional<std::int64_t> positions() const { return weights_.Positions(config_); }
  // Returns the tokens that end a text, from generation_config.json or else config.json.
  const std::vector<std::int64_t>& ends_of_text() const { return ends_of_text_; }

  // Checks that the model and a forward of `sequence` tokens fit in memory.
  Status CheckFits(std::int64_t sequence) const;
  // Builds the model for sequences of up to `sequence` tokens and reads its weights. Errors:
  // kInvalidArgument if they do not fit; kUnavailable if they are not finite.
  Result<LanguageModel> Load(std::int64_t sequence) const;

 private:
  ModelFolder(std::string folder, ModelConfig config, HuggingFaceWeights weights)
      : folder_(std::move(folder)), config_(std::move(config)), weights_(std::move(weights)) {}

  std::string folder_;
  ModelConfig config_;
  HuggingFaceWeights weights_;
  OpenedTokenizer tokenizer_;
  std::vector<std::string> notes_;
  std::vector<std::int64_t> ends_of_text_;
};

}  // namespace penstock
