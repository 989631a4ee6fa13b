// Numbers as users write them, read in one way everywhere: on the command line, in YAML and beside
// a CSV.
//
// Errors: kInvalidArgument with the text quoted; the caller adds which option or key it is of.
#pragma once

#include <string_view>

#include "base/result.h"

namespace penstock {

// Reads a whole decimal number ("8", "-3"). Refuses leading zeros, which some programs read as
// octal.
Result<int> ParseInt(std::string_view text);

// Reads a finite decimal number ("0.25", "1e-3").
Result<double> ParseNumber(std::string_view text);

}  // namespace penstock
