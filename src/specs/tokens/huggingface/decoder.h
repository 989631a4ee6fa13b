// Decoder: what a tokenizer.json does to tokens to get back the text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokens/huggingface/normalizer.h"

namespace penstock {

// Immutable, so any thread may use it.
class Decoder {
 public:
  // Reads the member "decoder" of the file. Errors: kInvalidArgument for what is not supported.
  static Result<Decoder> Read(const nlohmann::json& file);

  // Returns the text of the tokens.
  std::string Decode(std::vector<std::string> tokens) const;

 private:
  struct ByteLevelStep {};  // characters back to bytes (byte_alphabet.h)
  struct FallbackStep {};   // tokens such as <0x0A> back to bytes
  struct FuseStep {};       // one token of all
  struct SpaceStep {        // back to spaces
    std::string space;
    bool strips = false;  // removes spaces of the first token
  };
  // Removes up to `start` and `stop` characters `content` from the ends of each token.
  struct StripStep {
    std::string content;
    std::size_t start = 0, stop = 0;
  };
  using Step =
      std::variant<ByteLevelStep, FallbackStep, FuseStep, SpaceStep, StripStep, ReplaceStep>;

  Status Add(const nlohmann::json& part, const std::string& type);

  static void Apply(const ByteLevelStep& step, std::vector<std::string>& tokens);
  static void Apply(const FallbackStep& step, std::vector<std::string>& tokens);
  static void Apply(const FuseStep& step, std::vector<std::string>& tokens);
  static void Apply(const SpaceStep& step, std::vector<std::string>& tokens);
  static void Apply(const StripStep& step, std::vector<std::string>& tokens);
  static void Apply(const ReplaceStep& step, std::vector<std::string>& tokens);

  std::vector<Step> steps_;
};

}  // namespace penstock
