// How the command line writes the name of a parameter.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace penstock {

// Returns "--memory-limit" for "memory_limit".
inline std::string OptionName(std::string_view parameter) {
  std::string option = "--" + std::string(parameter);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

}  // namespace penstock
