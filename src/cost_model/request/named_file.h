// Values that are a known name or the path of a file.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text/quote.h"

namespace penstock {

inline bool NamesFile(const std::string& text) {
  std::error_code error;
  return text.find('/') != std::string::npos || text.ends_with(".json") ||
         text.ends_with(".yaml") || text.ends_with(".yml") || std::filesystem::exists(text, error);
}

// Returns an error about a value of a field.
inline Error About(std::string_view parameter, const std::string& value, Error error) {
  error.message = fmt::format("{}: {}", Quote(value), error.message);
  error.parameter = parameter;
  return error;
}

}  // namespace penstock
