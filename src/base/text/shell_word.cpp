#include "base/text/shell_word.h"

namespace penstock {

std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_@./,:=+%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

}  // namespace penstock
