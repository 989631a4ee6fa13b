// Errors about a parameter name it as the function that refuses it does: a clause of the message is
// the parameter and its value ("schedule zbv: chunks 3: must be 2"). The layer that knows under
// which option or key the user gave the parameter replaces the name.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace penstock {

// Returns the first parameter among `names` that the message names so, or nothing. The view points
// into the message.
std::optional<std::string_view> FindParameter(std::string_view message,
                                              std::span<const std::string_view> names);

}  // namespace penstock
