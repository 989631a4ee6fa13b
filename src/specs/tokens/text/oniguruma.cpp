#include "tokens/text/oniguruma.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/text/quote.h"

namespace penstock {
namespace {

// Characters of words, which PCRE2's \w has without marks.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Escapes that both read in the same way.
constexpr std::string_view kSameEscapes = "dDsSnrtfea";
constexpr std::string_view kGroups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};

class Translator {
 public:
  explicit Translator(std::string_view expression) : rest_(expression) {}

  Result<std::string> Run() {
    // Elsewhere, Oniguruma reads it as a group up to the end.
    if (Take("(?i)")) to_ += "(?i)";
    while (!rest_.empty()) PENSTOCK_TRY_STATUS(Next());
    return std::move(to_);
  }

 private:
  bool Take(std::string_view prefix) {
    if (!rest_.starts_with(prefix)) return false;
    rest_.remove_prefix(prefix.size());
    return true;
  }

  char TakeOne() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  static tl::unexpected<Error> Unsupported(std::string_view what) {
    return InvalidArgument("{} is not supported in a regular expression", Quote(what));
  }

  Status Next() {
    switch (rest_.front()) {
      case '(':
        return Group();
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        to_ += TakeOne();
        return {};
      case '[':
        atom_ = to_.size();
        return Class();
      case '{':
        return Interval();
      case '\\':
        atom_ = to_.size();
        return Escape(false);
      case '*':
      case '+':
      case '?':
        to_ += TakeOne();
        return {};
      default:
        atom_ = to_.size();
        TakeCharacter();
        return {};
    }
  }

  // All bytes of one character, so that an interval repeats all of it.
  void TakeCharacter() {
    do {
      to_ += TakeOne();
    } while (!rest_.empty() && (static_cast<unsigned char>(rest_.front()) & 0xC0) == 0x80);
  }

  Status Group() {
    groups_.push_back(to_.size());
    if (!rest_.starts_with("(?")) {
      to_ += TakeOne();
      return {};
    }
    for (const std::string_view group : kGroups) {
      if (!Take(group)) continue;
      to_ += group;
      return {};
    }
    return Unsupported(rest_.substr(0, 4));
  }

  // PCRE2 reads {n,m}+ as possessive, Oniguruma as a repeated interval.
  Status Interval() {
    const std::size_t end = rest_.find('}');
    const std::string_view body = rest_.substr(1, end == rest_.npos ? 0 : end - 1);
    const bool counts = !body.empty() && body != "," && std::ranges::all_of(body, [](char c) {
      return c == ',' || std::isdigit(static_cast<unsigned char>(c)) != 0;
    });
    if (!counts) {
      atom_ = to_.size();
      to_ += "\\{";
      rest_.remove_prefix(1);
      return {};
    }
    rest_.remove_prefix(end + 1);
    to_ += body.front() == ',' ? "{0" : "{";
    to_ += body;
    to_ += '}';
    if (rest_.starts_with('?') && body.find(',') == body.npos) return Unsupported("{n}?");
    if (!rest_.starts_with('+')) return {};
    to_.insert(atom_, "(?:");
    to_ += ')';
    return {};
  }

  Status Class() {
    to_ += TakeOne();
    if (Take("^")) to_ += '^';
    bool first = true;
    while (!rest_.empty() && (rest_.front() != ']' || first)) {
      first = false;
      if (rest_.front() == '[') return Unsupported(rest_.substr(0, 2));
      if (rest_.starts_with("&&")) return Unsupported("&&");
      if (rest_.front() == '\\') {
        PENSTOCK_TRY_STATUS(Escape(true));
      } else {
        to_ += TakeOne();
      }
    }
    if (rest_.empty()) return InvalidArgument("a class '[' does not end");
    to_ += TakeOne();
    return {};
  }

  Status Escape(bool in_class) {
    rest_.remove_prefix(1);
    if (rest_.empty()) return InvalidArgument("the regular expression ends with '\\'");
    const char c = rest_.front();
    if (kSameEscapes.find(c) != kSameEscapes.npos ||
        std::ispunct(static_cast<unsigned char>(c)) != 0) {
      to_ += '\\';
      to_ += TakeOne();
      return {};
    }
    switch (c) {
      case 'p':
      case 'P':
        return Property();
      case 'h':
        rest_.remove_prefix(1);
        to_ += in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]";
        return {};
      case 'v':
        rest_.remove_prefix(1);
        to_ += "\\x{b}";
        return {};
      case 'w':
        rest_.remove_prefix(1);
        to_ += in_class ? std::string(kWord) : fmt::format("[{}]", kWord);
        return {};
      case 'W':
        if (in_class) return Unsupported("[\\W]");
        rest_.remove_prefix(1);
        to_ += fmt::format("[^{}]", kWord);
        return {};
      case 'u':
        return Hex(rest_.substr(1, 4), 5);
      case 'x':
        if (rest_.starts_with("x{")) {
          const std::string_view digits = rest_.substr(2, rest_.find('}') - 2);
          return Hex(digits, digits.size() + 3);
        }
        return Hex(rest_.substr(1, 2), 3);
      default:
        if (static_cast<signed char>(c) < 0) {
          TakeCharacter();
          return {};
        }
        return Unsupported(fmt::format("\\{}", c));
    }
  }

  // `length` is the length of the whole escape, without the backslash.
  Status Hex(std::string_view digits, std::size_t length) {
    const bool good = !digits.empty() && length <= rest_.size() &&
                      std::ranges::all_of(digits, [](unsigned char c) { return std::isxdigit(c); });
    if (!good) return Unsupported(rest_.substr(0, 4));
    to_ += fmt::format("\\x{{{}}}", digits);
    rest_.remove_prefix(length);
    return {};
  }

  // PCRE2 reads the name of a script as the characters that are used with it.
  Status Property() {
    const char kind = TakeOne();
    const std::size_t end = rest_.find('}');
    if (!rest_.starts_with('{') || end == rest_.npos) return Unsupported("\\p without braces");
    std::string_view name = rest_.substr(1, end - 1);
    const bool negates = name.starts_with('^');
    if (negates) name.remove_prefix(1);
    rest_.remove_prefix(end + 1);
    const std::string_view script = name.size() > 2 ? "sc:" : "";
    to_ += fmt::format("\\{}{{{}{}{}}}", kind, negates ? "^" : "", script, name);
    return {};
  }

  std::string_view rest_;
  std::string to_;
  std::size_t atom_ = 0;             // where in `to_` the last atom begins
  std::vector<std::size_t> groups_;  // where the open groups begin
};

}  // namespace

Result<std::string> ToPcre2(std::string_view expression) { return Translator(expression).Run(); }

}  // namespace penstock
