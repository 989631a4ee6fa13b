#include "scenario/command_line.h"

#include <fmt/format.h>

#include <string_view>

#include "base/text/option_name.h"
#include "scenario/fields.h"

namespace penstock {
namespace {

// Returns the text as a word of a shell.
std::string ShellWord(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char each : text) word += each == '\'' ? std::string("'\\''") : std::string(1, each);
  return word + "'";
}

}  // namespace

std::string WordOf(const Candidate& candidate) {
  std::string word = candidate.name;
  for (const auto& [key, value] : candidate.options) word += fmt::format(":{}={}", key, value);
  return word;
}

std::string CommandLineOf(const Scenario& scenario) {
  std::string command = "penstock simulate " + ShellWord(WordOf(scenario.schedules.front()));
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, scenario) || IsNested(field)) continue;
    command += fmt::format(" {}={}", OptionName(field.name), ShellWord(TextOf(field, scenario)));
  }
  return command;
}

}  // namespace penstock
