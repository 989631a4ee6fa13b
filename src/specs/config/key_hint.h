// Suggestions for configuration keys that do not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/fields.h"

namespace penstock {

// Returns "lr" of "optimizer.lr".
std::string_view LastWord(std::string_view key);

// Returns the key with this last word, or that other frameworks call by this name
// (Field::known_as); an empty text if there is none.
std::string_view KeyCalled(std::string_view name, const std::vector<Field>& fields);

// Returns "did you mean 'KEY'?" for the key with this last word in another section, the key that
// other frameworks call by this name (Field::known_as), or the most similar key. If there is none,
// says what a run has in its place (InPlaceOf), or lists the keys of the section.
std::string KeyHint(std::string_view unknown, const std::vector<Field>& fields);

}  // namespace penstock
