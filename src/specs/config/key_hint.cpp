#include "config/key_hint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "base/text/nearest.h"
#include "config/other_names.h"

namespace penstock {
namespace {

// Returns the section with its dot, or an empty text for a top-level key.
std::string_view SectionOf(std::string_view key) { return key.substr(0, key.rfind('.') + 1); }

// Returns the name in lower case with underscores.
std::string PlainWord(std::string_view word) {
  std::string name(word);
  for (char& c : name) {
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

// Returns the key that other frameworks call `word`, or an empty text.
std::string_view KnownAs(std::string_view word, const std::vector<Field>& fields) {
  const std::string name = PlainWord(word);
  for (const Field& field : fields) {
    const std::vector<std::string_view> names = Words(field.known_as);
    if (std::find(names.begin(), names.end(), name) != names.end()) return field.key;
  }
  return {};
}

// Returns the key of `section` whose last word is the most similar, or an empty text.
std::string_view NearestIn(std::string_view section, std::string_view word,
                           const std::vector<std::string_view>& keys) {
  std::vector<std::string_view> words;
  for (const std::string_view key : keys) {
    if (SectionOf(key) == section) words.push_back(LastWord(key));
  }
  const std::string_view nearest = Nearest(word, words);
  const auto found = std::find_if(keys.begin(), keys.end(), [&](std::string_view key) {
    return SectionOf(key) == section && LastWord(key) == nearest;
  });
  return found == keys.end() ? std::string_view() : *found;
}

std::string_view MeantKey(std::string_view unknown, const std::vector<Field>& fields,
                          const std::vector<std::string_view>& keys) {
  const std::string_view word = LastWord(unknown);
  std::vector<std::string_view> same_word;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(same_word),
               [&](std::string_view key) { return LastWord(key) == word; });
  if (!same_word.empty()) {
    const std::string_view nearest = Nearest(unknown, same_word);
    return nearest.empty() ? same_word.front() : nearest;
  }
  for (const std::string_view meant :
       {KnownAs(word, fields), NearestIn(SectionOf(unknown), word, keys), Nearest(unknown, keys)}) {
    if (std::find(keys.begin(), keys.end(), meant) != keys.end()) return meant;
  }
  std::vector<std::string_view> words;
  for (const std::string_view key : keys) words.push_back(LastWord(key));
  const std::string_view nearest = Nearest(word, words);
  return nearest.empty() ? nearest
                         : keys[std::find(words.begin(), words.end(), nearest) - words.begin()];
}

}  // namespace

std::string_view LastWord(std::string_view key) { return key.substr(key.rfind('.') + 1); }

std::string_view KeyCalled(std::string_view name, const std::vector<Field>& fields) {
  const std::string word = PlainWord(LastWord(name));
  for (const Field& field : fields) {
    if (LastWord(field.key) == word) return field.key;
  }
  return KnownAs(word, fields);
}

std::string KeyHint(std::string_view unknown, const std::vector<Field>& fields) {
  std::vector<std::string_view> keys;
  for (const Field& field : fields) keys.push_back(field.key);
  const std::string_view instead = InPlaceOf(unknown);
  if (!instead.empty()) return std::string(instead);
  const std::string_view meant = MeantKey(unknown, fields, keys);
  if (!meant.empty()) return fmt::format("did you mean '{}'?", meant);
  std::vector<std::string_view> section;
  for (const std::string_view key : keys) {
    if (SectionOf(key) == SectionOf(unknown)) section.push_back(key);
  }
  return fmt::format("the keys are {}", fmt::join(section.empty() ? keys : section, ", "));
}

}  // namespace penstock
