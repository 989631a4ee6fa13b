// Splits lists that users write.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Returns the parts between separators: one more than there are separators, and any may be empty.
std::vector<std::string> SplitAt(std::string_view text, char separator);

}  // namespace penstock
