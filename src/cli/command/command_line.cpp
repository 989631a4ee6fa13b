#include "cli/command/command_line.h"

#include <algorithm>
#include <string_view>

namespace penstock {
namespace {

std::string ShellQuoted(const std::string& word) {
  constexpr std::string_view kPlain = "_@%+=:,./-~";
  const auto is_plain = [&](unsigned char c) {
    return std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

bool IsFlag(const CLI::Option& option) { return option.get_expected_max() == 0; }

}  // namespace

std::string CommandLine(const std::string& name, const CLI::App& app) {
  std::string line = "penstock " + name, options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool is_operand = !option->nonpositional();
    for (const std::string& value : option->results()) {
      if (is_operand) {
        line += ' ' + ShellQuoted(value);
      } else if (IsFlag(*option)) {
        options += ' ' + option->get_name();
      } else {
        options += ' ' + option->get_name() + ' ' + ShellQuoted(value);
      }
    }
  }
  return line + options;
}

}  // namespace penstock
