// Enumerations by the names of their values.
#pragma once

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {

// Returns the value whose name is `text`; `names` has the names of all values in their order.
// Errors: kInvalidArgument about the field, with the names.
template <class Enum, std::size_t N>
Result<Enum> ReadName(const char* field, const std::string& text,
                      const std::array<std::string_view, N>& names) {
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  return InvalidParameter(field, "{}: give one of {}{}", Quote(text), fmt::join(names, ", "),
                          Suggestion(text, {names.begin(), names.end()}));
}

}  // namespace penstock
