// Parses numbers that users write, in one way everywhere: on the command line and in YAML.
//
// Errors: kInvalidArgument, quoting the text. The caller adds the option or key.
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
