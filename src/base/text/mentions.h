// Parameters that a message names in backticks, as errors do (base/result.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace penstock {

// Returns what a user writes for a parameter: "--memory-limit" on the command line.
using Spelling = std::function<std::string(std::string_view parameter)>;

// Returns the text with each `name` in backticks replaced by its spelling.
std::string SpellMentions(std::string_view text, const Spelling& spelling);

}  // namespace penstock
