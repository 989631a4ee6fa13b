#include "scenario/spelling.h"

#include <algorithm>

#include "scenario/fields.h"

namespace penstock {
namespace {

// "price" of "price recompute".
std::string_view FieldOf(std::string_view parameter) {
  return parameter.substr(0, parameter.find(' '));
}

// Whether the place of an error ends with a line of a file. Its parameter is then a key there.
bool HasLine(const Error& error) {
  constexpr std::string_view kLine = "line ";
  const std::size_t at = error.where.rfind(kLine);
  if (at == std::string::npos) return false;
  return error.where.find_first_not_of("0123456789", at + kLine.size()) == std::string::npos;
}

// Whether the user can write the parameter as an option. Others are keys of files.
bool IsOption(std::string_view parameter) {
  constexpr std::string_view kOthers[] = {"schedule",   "csv",   "sweep",   "run",
                                          "unit",       "dump",  "memory",  "global_batch",
                                          "exclude",    "for",   "samples", "uncertainty",
                                          "precisions", "costs", "tokens",  "price_per_hour"};
  return FindField(parameter) != nullptr ||
         std::ranges::find(kOthers, parameter) != std::end(kOthers);
}

}  // namespace

Error Spell(Error error, const Scenario& scenario, const Spelling& spelling,
            std::string_view otherwise) {
  if (HasLine(error)) {
    error.message =
        SpellMentions(error.message, [](std::string_view key) { return std::string(key); });
    return error;
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
    if (IsOption(field)) error.parameter = spell(field) + error.parameter.substr(field.size());
  }
  error.message = SpellMentions(error.message, spell);
  error.where = SpellMentions(error.where, spell);
  if (place.empty() && error.parameter.empty()) {
    const auto given = scenario.places.find(otherwise);
    if (given != scenario.places.end()) place = given->second;
  }
  return place.empty() ? error : In(place, std::move(error));
}

}  // namespace penstock
