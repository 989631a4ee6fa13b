// Regular expressions in the syntax of Oniguruma, in which tokenizer.json has them, as PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Returns an expression that matches the same with PCRE2_UTF, PCRE2_UCP and PCRE2_MULTILINE.
// Errors: kInvalidArgument for constructs that the two read differently and that are not
// translated.
Result<std::string> ToPcre2(std::string_view expression);

}  // namespace penstock
