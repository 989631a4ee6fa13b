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

HelpGroup::Entry EntryOf(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += " (default " + option.get_default_str() + ")";
  if (option.get_required() && !option.get_positional()) text += " (required)";
  return {NameOf(option), std::move(text)};
}

void AddGroup(const CLI::App& app, const std::string& title,
              const std::function<bool(const CLI::Option&)>& belongs,
              std::vector<HelpGroup>& groups) {
  HelpGroup group{title, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (belongs(*option)) group.entries.push_back(EntryOf(*option));
  }
  if (!group.entries.empty()) groups.push_back(std::move(group));
}

}  // namespace

std::unique_ptr<CLI::App> AppOf(Command& command) {
  auto app = std::make_unique<CLI::App>(command.Summary(), command.Name());
  command.Define(*app);
  // Added last, to the group of the last options. A command without a help flag forwards --help.
  if (app->get_help_ptr() != nullptr) app->set_help_flag("-h,--help", "Print this help");
  return app;
}

// CLI11 appends its checks to the type: "INT:INT in [1 - 9]".
std::string ValueName(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string name = type.substr(0, type.find(':'));
  if (name == "INT" || name == "UINT") return "N";
  if (name == "FLOAT") return "X";
  return name.empty() || name == "TEXT" ? "VALUE" : name;
}

std::string HelpEntry(const std::string& name, std::string_view text) {
  return ColumnEntry(name, text, kTextColumn);
}

std::string AboutProgram() {
  return "Penstock trains models in pipeline stages. Schedules are plain data: it generates, "
         "validates, simulates, draws and executes them.";
}

std::string ProgramExitCodes() {
  return "0 success; 1 a run failed, validate found a fault, or checkpoint found damage; 2 bad "
         "usage or input";
}

HelpGroup CommandsGroup(const std::vector<std::unique_ptr<Command>>& commands) {
  HelpGroup group{"Commands", {}};
  for (const auto& command : commands) {
    group.entries.push_back({command->Name(), command->Summary()});
  }
  group.entries.push_back(
      {"help", "Print this help, or that of a command: penstock help simulate"});
  group.entries.push_back({"version", "Print the version"});
  return group;
}

std::string UsageOf(const Command& command, const CLI::App& app) {
  std::string usage = "penstock " + command.Name();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    usage += fmt::format(fmt::runtime(option->get_required() ? " {}" : " [{}]"), NameOf(*option));
  }
  const std::string operands = command.Operands();
  return fmt::format("{} [OPTION...]{}{}", usage, operands.empty() ? "" : " ", operands);
}

std::vector<HelpGroup> GroupsOf(const Command& command, const CLI::App& app) {
  std::vector<HelpGroup> groups;
  AddGroup(
      app, "Arguments", [](const CLI::Option& option) { return option.get_positional(); }, groups);
  for (const std::string& name : app.get_groups()) {
    AddGroup(
        app, name,
        [&](const CLI::Option& option) {
          return option.nonpositional() && option.get_group() == name;
        },
        groups);
  }
  for (HelpGroup& more : command.MoreHelp()) groups.push_back(std::move(more));
  return groups;
}

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string help =
      Wrap(AboutProgram(), 0) + "\n\nUsage: penstock COMMAND [ARGUMENT...]\n\nCommands:\n";
  for (const auto& [name, text] : CommandsGroup(commands).entries) {
    help += ColumnEntry(name, text, kCommandColumn);
  }
  help += "\n'penstock COMMAND --help' describes its arguments and options.\n\n";
  return help + Wrap("Exit codes: " + ProgramExitCodes() + ".", 0) + '\n';
}

std::string HelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = Wrap(command.Summary(), 0) + "\n\nUsage: " + UsageOf(command, app) + '\n';
  for (const HelpGroup& group : GroupsOf(command, app)) {
    help += fmt::format("\n{}:\n", group.title);
    for (const auto& [name, text] : group.entries) help += HelpEntry(name, text);
  }
  if (!app.get_footer().empty()) help += '\n' + Wrap(app.get_footer(), 0) + '\n';
  return help + '\n' + Wrap("Exit codes: " + command.ExitCodes() + ".", 0) + '\n';
}

}  // namespace penstock
