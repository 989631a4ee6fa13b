// What to write in place of a configuration key that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/fields.h"

namespace penstock {

// Returns "lr" of "optimizer.lr".
std::string_view LastWord(std::string_view key);

// Returns "did you mean 'KEY'?" for what other frameworks call by this name (Field::known_as), for
// the key of this last word in another section, or for the most similar key of the same section;
// else the keys there are.
std::string KeyHint(std::string_view unknown, const std::vector<Field>& fields);

}  // namespace penstock
