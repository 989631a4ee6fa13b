// Unicode's normal forms, with the tables of the tokenizers package (Unicode 9).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Appends `text` in the form. Requires: valid UTF-8.
void AppendNormalized(std::string_view text, NormalForm form, std::string& to);

}  // namespace penstock
