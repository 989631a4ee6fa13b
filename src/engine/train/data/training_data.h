// TrainingData: what a run trains on and is evaluated on, with its tokenizer. No torch here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "tokens/kinds/open_tokenizer.h"
#include "train/data/data.h"
#include "train/data/sample_source.h"
#include "train/data/token_span.h"

namespace penstock {

struct TrainingData {
  std::shared_ptr<SampleSource> samples;
  OpenedTokenizer tokenizer;
  // Bytes of text: also what the bigram baseline is computed from. Otherwise empty.
  std::shared_ptr<const Corpus> bytes;
  std::vector<TokenId> held_out_ids;  // otherwise
  std::string description;            // for the log
  std::vector<std::string> notes;     // what the user should know about the files

  bool is_bytes() const { return bytes != nullptr; }
  std::string unit() const;  // UnitOf(tokenizer)
  TokenSpan held_out() const;
};

// Returns what a token is called: "byte" or "token".
std::string UnitOf(const OpenedTokenizer& tokenizer);

// Loads what `config.data` describes: text, a token folder, or several. Requires: config.batch and
// config.pipeline.microbatches are chosen. Errors: kNotFound, or kInvalidArgument if the data is
// too short for one sample, if the tokenizers of several folders differ, or if the model's
// vocabulary is smaller than the tokenizer's.
Result<TrainingData> LoadTrainingData(const TrainConfig& config);

}  // namespace penstock
