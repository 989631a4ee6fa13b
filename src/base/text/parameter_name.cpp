#include "base/text/parameter_name.h"

#include <algorithm>

namespace penstock {
namespace {

constexpr std::string_view kClauseEnd = ": ";

// Returns the parameter of "NAME VALUE", or nothing if the clause has another form.
std::optional<std::string_view> ParameterOf(std::string_view clause,
                                            std::span<const std::string_view> names) {
  const std::size_t space = clause.find(' ');
  if (space == std::string_view::npos || clause.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view name = clause.substr(0, space);
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  return name;
}

}  // namespace

std::optional<std::string_view> FindParameter(std::string_view message,
                                              std::span<const std::string_view> names) {
  while (true) {
    const std::size_t end = message.find(kClauseEnd);
    if (end == std::string_view::npos) return std::nullopt;
    if (const auto name = ParameterOf(message.substr(0, end), names)) return name;
    message.remove_prefix(end + kClauseEnd.size());
  }
}

}  // namespace penstock
