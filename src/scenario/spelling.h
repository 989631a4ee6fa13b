// Errors as the user wrote what they are about. The library names parameters ("memory_limit"), also
// in backticks within a message; a user reads the option ("--memory-limit"), or the key with its
// place if a file gave it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scenario/scenario.h"

namespace penstock {

// Returns what a user writes for a field: "--memory-limit" on the command line.
using Spelling = std::function<std::string(std::string_view field)>;

// Returns the error with its parameter, and those in backticks, as the user writes them. If a file
// gave one of them, its place goes in front; `otherwise` is what the error is about if it names no
// parameter. An error that has the place of a file already is returned as it is.
Error Spell(Error error, const Scenario& scenario, const Spelling& spelling,
            std::string_view otherwise = {});

// Returns the text with the parameters in backticks as the user writes them.
std::string SpellMentions(std::string_view text, const Spelling& spelling);

}  // namespace penstock
