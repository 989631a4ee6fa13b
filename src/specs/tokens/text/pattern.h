// Pattern: a regular expression or a literal text of a tokenizer.json.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// What matching needs in addition to the pattern. Threads: one at a time.
class MatchState {
 public:
  MatchState();
  ~MatchState();
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

 private:
  friend class Pattern;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Immutable, so any thread may use it.
class Pattern {
 public:
  // `expression` has Oniguruma's syntax. Errors: kInvalidArgument if it is invalid or uses what is
  // not supported.
  static Result<Pattern> Regex(std::string_view expression);
  // Requires: a text that is not empty.
  static Pattern Literal(std::string_view text);
  ~Pattern();
  Pattern(Pattern&& other) noexcept;
  Pattern& operator=(Pattern&& other) noexcept;

  // Appends the matches in part `in` of the subject, which is matched as if it were the whole.
  // Requires: valid UTF-8; WithStandIns (newer_characters.h) for a regular expression. Errors:
  // kInvalidArgument if matching needs too many steps.
  Status FindAll(std::string_view subject, TextSpan in, MatchState& state,
                 std::vector<TextSpan>& matches) const;

 private:
  Pattern() = default;
  Status FindRegex(std::string_view subject, TextSpan in, MatchState& state,
                   std::vector<TextSpan>& matches) const;

  struct Code;
  std::unique_ptr<Code> code_;  // null for a literal
  std::string literal_;
};

}  // namespace penstock
