#include "cli/output/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

namespace penstock {

bool OutputHasColor() {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

ColorDepth TerminalDepth() {
  const char* const depth = std::getenv("COLORTERM");
  const std::string_view text = depth == nullptr ? "" : depth;
  return text == "truecolor" || text == "24bit" ? ColorDepth::kTrue : ColorDepth::k256;
}

bool OutputHasUnicode() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first one that is set
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text = value;
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace penstock
