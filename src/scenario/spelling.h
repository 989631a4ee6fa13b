// Errors as the user wrote what they are about. The library names parameters ("memory_limit"), also
// in backticks within a message; a user reads the option ("--memory-limit"), or the key with its
// place if a file gave it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/text/mentions.h"
#include "scenario/scenario.h"

namespace penstock {

// Returns the error with its parameter, and those in backticks, as the user writes them. If a file
// gave one of them, its place goes in front; `otherwise` is what the error is about if it names no
// parameter. An error about a key of a file, whose line it has, keeps the key.
Error Spell(Error error, const Scenario& scenario, const Spelling& spelling,
            std::string_view otherwise = {});

}  // namespace penstock
