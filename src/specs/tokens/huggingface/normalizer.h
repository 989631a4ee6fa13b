// Normalizer: what a tokenizer.json does to text before it is split.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokens/text/normal_form.h"
#include "tokens/text/pattern.h"

namespace penstock {

// Replaces matches. Also a step of decoders.
struct ReplaceStep {
  Pattern pattern;
  std::string content;

  static Result<ReplaceStep> Read(const nlohmann::json& part, std::string_view what);
  // Requires: valid UTF-8.
  Result<std::string> Apply(std::string_view text, MatchState& state) const;
};

// Immutable, so any thread may use it.
class Normalizer {
 public:
  // Reads the member "normalizer" of the file. Errors: kInvalidArgument for what is not supported.
  static Result<Normalizer> Read(const nlohmann::json& file);

  // Returns `text` if it stays the same, otherwise `buffer`, to which it writes the result.
  // Requires: valid UTF-8.
  Result<std::string_view> Apply(std::string_view text, MatchState& state,
                                 std::string& buffer) const;

 private:
  struct PrependStep {
    std::string content;
  };
  using Step = std::variant<NormalForm, PrependStep, ReplaceStep>;

  std::vector<Step> steps_;
};

}  // namespace penstock
