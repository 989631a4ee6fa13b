#include "cli/help.h"

#include <algorithm>
#include <string_view>

namespace penstock {
namespace {

constexpr std::size_t kLineWidth = 96;   // per line
constexpr std::size_t kTextColumn = 30;  // where descriptions start
constexpr std::size_t kCommandColumn = 14;

// Breaks lines between words. Each line after the first starts at column `indent`.
std::string Wrap(std::string_view text, std::size_t indent) {
  std::string wrapped;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > kLineWidth) {
      wrapped += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
    begin = end + 1;
  }
  return wrapped;
}

// A name and its meaning, in two columns.
std::string ColumnEntry(const std::string& name, std::string_view text, std::size_t column) {
  std::string entry = "  " + name;
  const bool fits = entry.size() + 2 <= column;
  entry += fits ? std::string(column - entry.size(), ' ') : '\n' + std::string(column, ' ');
  return entry + Wrap(text, column) + '\n';
}

// The placeholder of an option's value. CLI11 appends its checks to the type: "INT:INT in [1 - 9]".
std::string ValueName(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";  // a flag
  const std::string type = option.get_type_name();
  const std::string name = type.substr(0, type.find(':'));
  if (name == "INT" || name == "UINT") return "N";
  if (name == "FLOAT") return "X";
  return name.empty() || name == "TEXT" ? "VALUE" : name;
}

std::string NameOf(const CLI::Option& option) {
  if (option.get_positional()) {
    const bool many = option.get_expected_max() >= CLI::detail::expected_max_vector_size;
    return option.get_name(true) + (many ? "..." : "");
  }
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string value = ValueName(option);
  return fmt::format("{}{}{}", fmt::join(names, ", "), value.empty() ? "" : " ", value);
}

std::string EntryOf(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += " (default " + option.get_default_str() + ")";
  if (option.get_required() && !option.get_positional()) text += " (required)";
  return HelpEntry(NameOf(option), text);
}

std::string UsageOf(const Command& command, const CLI::App& app) {
  std::string usage = fmt::format("Usage: penstock {}", command.Name());
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    usage += fmt::format(fmt::runtime(option->get_required() ? " {}" : " [{}]"), NameOf(*option));
  }
  const std::string operands = command.Operands();
  return fmt::format("{} [OPTION...]{}{}\n", usage, operands.empty() ? "" : " ", operands);
}

std::string Group(const CLI::App& app, const std::string& title,
                  const std::function<bool(const CLI::Option&)>& belongs) {
  std::string entries;
  for (const CLI::Option* option : app.get_options()) {
    if (belongs(*option)) entries += EntryOf(*option);
  }
  return entries.empty() ? entries : fmt::format("\n{}:\n{}", title, entries);
}

}  // namespace

std::string HelpEntry(const std::string& name, std::string_view text) {
  return ColumnEntry(name, text, kTextColumn);
}

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string help = Wrap(
      "Penstock trains models in pipeline stages. Schedules are plain data: it generates, "
      "validates, simulates, draws and executes them.",
      0);
  help += "\n\nUsage: penstock COMMAND [ARGUMENT...]\n\nCommands:\n";
  for (const auto& command : commands) {
    help += ColumnEntry(command->Name(), command->Summary(), kCommandColumn);
  }
  help += ColumnEntry("help", "Print this help, or that of a command: penstock help simulate",
                      kCommandColumn);
  help += ColumnEntry("version", "Print the version", kCommandColumn);
  help += "\n'penstock COMMAND --help' describes its arguments and options.\n\n";
  return help +
         Wrap(
             "Exit codes: 0 success; 1 a run failed, validate found a fault, or checkpoint found "
             "damage; 2 bad usage or input.",
             0) +
         '\n';
}

std::string HelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = Wrap(command.Summary(), 0) + "\n\n" + UsageOf(command, app);
  help += Group(app, "Arguments", [](const CLI::Option& o) { return o.get_positional(); });
  for (const std::string& group : app.get_groups()) {
    help += Group(app, group, [&](const CLI::Option& option) {
      return option.nonpositional() && option.get_group() == group;
    });
  }
  help += command.MoreHelp();
  if (!app.get_footer().empty()) help += '\n' + Wrap(app.get_footer(), 0) + '\n';
  return help + '\n' + Wrap("Exit codes: " + command.ExitCodes() + ".", 0) + '\n';
}

}  // namespace penstock
