// Suggestions for configuration keys that do not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/fields.h"

namespace penstock {

// Returns "lr" of "optimizer.lr".
std::string_view LastWord(std::string_view key);

// Returns "did you mean 'KEY'?" for the key with this last word in another section, the key that
// other frameworks call by this name (Field::known_as), or the most similar key. If there is none,
// lists the keys of the section.
std::string KeyHint(std::string_view unknown, const std::vector<Field>& fields);

}  // namespace penstock
