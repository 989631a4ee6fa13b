// What to write in place of a configuration key that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// "did you mean 'KEY'?" for what other frameworks call by this name, for the key of this last word
// in another section, or for the most similar key of the same section; else what keys there are.
std::string KeyHint(std::string_view unknown, const std::vector<std::string_view>& keys);

}  // namespace penstock
