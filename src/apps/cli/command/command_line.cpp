#include "cli/command/command_line.h"

#include "base/text/shell_word.h"

namespace penstock {
namespace {

bool IsFlag(const CLI::Option& option) { return option.get_expected_max() == 0; }

}  // namespace

std::string CommandLine(const std::string& name, const CLI::App& app) {
  std::string line = "penstock " + name, options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool is_operand = !option->nonpositional();
    for (const std::string& value : option->results()) {
      if (is_operand) {
        line += ' ' + ShellWord(value);
      } else if (IsFlag(*option)) {
        options += ' ' + option->get_name();
      } else {
        options += ' ' + option->get_name() + ' ' + ShellWord(value);
      }
    }
  }
  return line + options;
}

}  // namespace penstock
