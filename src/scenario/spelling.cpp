#include "scenario/spelling.h"

namespace penstock {
namespace {

// Replaces each `name` in backticks by what `replace` returns for it.
std::string ReplaceMentions(std::string_view text, const Spelling& replace) {
  std::string replaced;
  while (true) {
    const std::size_t begin = text.find('`');
    const std::size_t end = begin == text.npos ? text.npos : text.find('`', begin + 1);
    if (end == text.npos) return replaced += text;
    replaced += text.substr(0, begin);
    replaced += replace(text.substr(begin + 1, end - begin - 1));
    text.remove_prefix(end + 1);
  }
}

// "price" of "price recompute".
std::string_view FieldOf(std::string_view parameter) {
  return parameter.substr(0, parameter.find(' '));
}

}  // namespace

Error Spell(Error error, const Scenario& scenario, const Spelling& spelling,
            std::string_view otherwise) {
  for (const auto& [field, place] : scenario.places) {  // of one file
    if (error.where.starts_with(place.substr(0, place.rfind(' ')))) return error;
  }
  std::string place;
  const auto spell = [&](std::string_view field) {
    const auto given = scenario.places.find(field);
    if (given == scenario.places.end()) return spelling(field);
    if (place.empty()) place = given->second;
    return std::string(field);
  };
  if (!error.parameter.empty()) {
    const std::string_view field = FieldOf(error.parameter);
    error.parameter = spell(field) + error.parameter.substr(field.size());
  }
  error.message = ReplaceMentions(error.message, spell);
  error.where = ReplaceMentions(error.where, spell);
  if (place.empty() && error.parameter.empty()) {
    const auto given = scenario.places.find(otherwise);
    if (given != scenario.places.end()) place = given->second;
  }
  return place.empty() ? error : In(place, std::move(error));
}

std::string SpellMentions(std::string_view text, const Spelling& spelling) {
  return ReplaceMentions(text, spelling);
}

}  // namespace penstock
