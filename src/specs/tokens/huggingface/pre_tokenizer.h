// PreTokenizer: splits text into words, which are encoded separately.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokens/text/pattern.h"

namespace penstock {

// Text and the words that it is split into so far. Encoders reuse it.
struct SplitText {
  std::string_view text;
  std::vector<TextSpan> spans;  // in order; none is empty
  bool at_start = false;        // whether the text begins where the whole text does

  // Memory of the text and of the steps.
  std::string owned, other;
  std::string stand_ins;
  std::vector<TextSpan> next, matches;
};

// Immutable, so any thread may use it.
class PreTokenizer {
 public:
  // Reads the member "pre_tokenizer" of the file. Errors: kInvalidArgument for what is not
  // supported.
  static Result<PreTokenizer> Read(const nlohmann::json& file);

  // Splits words.text, which is one word at first and must be valid UTF-8.
  Status Split(SplitText& words, MatchState& state) const;

  // Whether the model gets the words as bytes, for which its vocabulary has characters
  // (byte_alphabet.h).
  bool byte_level() const { return byte_level_; }

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prefix { kAlways, kFirst, kNever };
  struct SplitStep {
    Pattern pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  // Replaces each space by `space`, and puts one before words that begin with another character.
  struct SpaceStep {
    std::string space;
    Prefix prefix = Prefix::kAlways;
  };
  struct BytesStep {};  // replaces bytes by their characters
  using Step = std::variant<SplitStep, SpaceStep, BytesStep>;

  Status Add(const nlohmann::json& part, const std::string& type);
  Status AddSplit(const nlohmann::json& part);
  Status AddMetaspace(const nlohmann::json& part);
  Status AddByteLevel(const nlohmann::json& part);
  Status AddRegex(std::string_view expression, Behavior behavior);

  static Status Apply(const SplitStep& step, SplitText& words, MatchState& state);
  static void Apply(const SpaceStep& step, SplitText& words);
  static void Apply(const BytesStep& step, SplitText& words);
  static void SplitWord(const SplitStep& step, TextSpan word, SplitText& words);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace penstock
