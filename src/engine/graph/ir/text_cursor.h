// Reads one line of the text form of a graph or a kernel.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/index.h"
#include "graph/ir/ir.h"

namespace penstock {

class TextError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A graph stores values by number, so a large number would allocate memory for all smaller ones.
inline constexpr std::int64_t kMaxValues = 1 << 20;

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool AtEnd() {
    SkipSpace();
    return text_.empty();
  }
  std::string_view rest() const { return text_; }

  std::string TakeRest() {
    SkipSpace();
    return std::string(Take(text_.size(), ""));
  }

  // Skips `token` if it is next.
  bool Accept(std::string_view token) {
    SkipSpace();
    if (text_.substr(0, token.size()) != token) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void Expect(std::string_view token) {
    if (!Accept(token)) Fail(fmt::format("'{}'", token));
  }
  // Skips everything up to and including `token`.
  void SkipPast(std::string_view token) {
    const std::size_t at = text_.find(token);
    if (at == std::string_view::npos) Fail(fmt::format("'{}'", token));
    text_.remove_prefix(at + token.size());
  }

  // Reads letters, digits, '_', '.' and ':'.
  std::string_view Word() {
    SkipSpace();
    std::size_t length = 0;
    while (length < text_.size() && IsWord(text_[length])) ++length;
    return Take(length, "a name");
  }
  // Reads a number, or another constant of word characters and signs.
  std::string_view Constant() {
    SkipSpace();
    std::size_t length = 0;
    while (length < text_.size() &&
           (IsWord(text_[length]) || text_[length] == '-' || text_[length] == '+')) {
      ++length;
    }
    return Take(length, "a constant");
  }
  std::string Quoted() {
    Expect("\"");
    const std::size_t end = text_.find('"');
    if (end == std::string_view::npos) Fail("'\"'");
    std::string inside(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return inside;
  }

  std::int64_t Integer() {
    SkipSpace();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc()) Fail("an integer");
    text_.remove_prefix(Index(end - text_.data()));
    return value;
  }
  std::vector<std::int64_t> Integers() {
    std::vector<std::int64_t> values;
    Expect("[");
    if (Accept("]")) return values;
    do values.push_back(Integer());
    while (Accept(","));
    Expect("]");
    return values;
  }
  // Reads "%5", or "none" for kNoValue.
  ValueId Value() {
    if (Accept("none")) return kNoValue;
    Expect("%");
    const std::int64_t number = Integer();
    if (number < 0 || number >= kMaxValues) {
      throw TextError(fmt::format("%{}: value numbers are 0 to {}", number, kMaxValues - 1));
    }
    return static_cast<ValueId>(number);
  }

  // Throws TextError: the rest of the text does not start with what is expected, or what precedes
  // it is wrong.
  [[noreturn]] void Fail(std::string_view expected) const {
    throw TextError(fmt::format("expected {} at '{}'", expected, text_.substr(0, 40)));
  }
  [[noreturn]] void FailBefore(std::string_view expected) const {
    throw TextError(fmt::format("expected {} before '{}'", expected, text_.substr(0, 40)));
  }

 private:
  static bool IsWord(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ':';
  }
  void SkipSpace() {
    while (!text_.empty() && text_.front() == ' ') text_.remove_prefix(1);
  }
  std::string_view Take(std::size_t length, std::string_view what) {
    if (length == 0 && !what.empty()) Fail(what);
    const std::string_view taken = text_.substr(0, length);
    text_.remove_prefix(length);
    return taken;
  }

  std::string_view text_;
};

// Parses a type such as "f32[2,3]/[3,1]". Without strides, it is contiguous. Throws TextError.
TensorType ParseType(TextCursor& cursor);

}  // namespace penstock
