// Names of models and devices as people write them: Llama-3-70B, H100.
#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace penstock {

// Ignores case, and whether words are separated by '-' or '_'.
inline bool IsSameName(std::string_view a, std::string_view b) {
  const auto plain = [](char c) {
    return c == '_' ? '-' : std::tolower(static_cast<unsigned char>(c));
  };
  return std::ranges::equal(a, b, {}, plain, plain);
}

}  // namespace penstock
