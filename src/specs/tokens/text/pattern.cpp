#include "tokens/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text/quote.h"
#include "tokens/text/oniguruma.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

constexpr std::size_t kLongestExpression = 1U << 16U;
constexpr std::size_t kLeastStack = 32U << 10U;
constexpr std::size_t kMostStack = 64U << 20U;
// The most steps of one match. Patterns of tokenizers need a few hundred.
constexpr std::uint32_t kMostSteps = 10'000'000;

std::string MessageOf(int error) {
  PCRE2_UCHAR message[256] = "";
  pcre2_get_error_message(error, message, sizeof message);
  return reinterpret_cast<const char*>(message);
}

}  // namespace

struct MatchState::Parts {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kLeastStack, kMostStack, nullptr);
};

MatchState::MatchState() : parts_(std::make_unique<Parts>()) {
  PENSTOCK_CHECK(parts_->data != nullptr && parts_->context != nullptr);
  pcre2_set_match_limit(parts_->context, kMostSteps);
  if (parts_->stack != nullptr) pcre2_jit_stack_assign(parts_->context, nullptr, parts_->stack);
}

MatchState::~MatchState() {
  pcre2_match_data_free(parts_->data);
  pcre2_match_context_free(parts_->context);
  pcre2_jit_stack_free(parts_->stack);
}

struct Pattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
};

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&& other) noexcept = default;
Pattern& Pattern::operator=(Pattern&& other) noexcept = default;

Result<Pattern> Pattern::Regex(std::string_view expression) {
  if (expression.size() > kLongestExpression) {
    return InvalidArgument("a regular expression of {} bytes is too long", expression.size());
  }
  PENSTOCK_TRY(const std::string translated, ToPcre2(expression));
  pcre2_compile_context* const context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t at = 0;
  pcre2_code* const code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return InvalidArgument("the regular expression {} is not supported: {}", Quote(expression),
                           MessageOf(error));
  }
  Pattern pattern;
  pattern.code_ = std::make_unique<Code>(code);
  // Where code may not be generated, PCRE2 interprets the expression.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return pattern;
}

Pattern Pattern::Literal(std::string_view text) {
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

Status Pattern::FindAll(std::string_view subject, TextSpan in, MatchState& state,
                        std::vector<TextSpan>& matches) const {
  if (code_ != nullptr) return FindRegex(subject, in, state, matches);
  const std::string_view part = subject.substr(0, in.end);
  for (std::size_t at = in.begin; (at = part.find(literal_, at)) != part.npos;) {
    matches.push_back({at, at + literal_.size()});
    at += literal_.size();
  }
  return {};
}

Status Pattern::FindRegex(std::string_view subject, TextSpan in, MatchState& state,
                          std::vector<TextSpan>& matches) const {
  const std::string_view part = subject.substr(in.begin, in.end - in.begin);
  const auto* const text = reinterpret_cast<PCRE2_SPTR>(part.data());
  const std::size_t* const found = pcre2_get_ovector_pointer(state.parts_->data);
  std::size_t last = part.npos;  // the end of the last match
  for (std::size_t at = 0; at <= part.size();) {
    const int count = pcre2_match(code_->code, text, part.size(), at, PCRE2_NO_UTF_CHECK,
                                  state.parts_->data, state.parts_->context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return InvalidArgument("a regular expression of the tokenizer fails at byte {} of a text: {}",
                             in.begin + at, MessageOf(count));
    }
    // An empty match must not follow another match directly.
    if (found[0] == found[1] && found[1] == last) {
      if (at == part.size()) break;
      NextCodePoint(part, at);
      continue;
    }
    matches.push_back({in.begin + found[0], in.begin + found[1]});
    at = last = found[1];
  }
  return {};
}

}  // namespace penstock
