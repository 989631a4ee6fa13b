#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Returns the text up to its first line break: libtorch appends a stack trace to its messages.
inline std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace penstock
