#include "scenario/command_line.h"

#include <fmt/format.h>

#include "base/text/option_name.h"
#include "base/text/shell_word.h"
#include "scenario/fields.h"

namespace penstock {

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
