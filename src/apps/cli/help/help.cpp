#include "cli/help/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "cli/help/examples.h"
#include "cli/values/value_checks.h"

namespace penstock {
namespace {

constexpr std::size_t kTextColumn = 30;  // where descriptions start
constexpr std::size_t kCommandColumn = 16;
constexpr std::size_t kHanging = 4;  // of the further lines of a usage

// The columns of the terminal, within what is comfortable to read; 80 elsewhere.
std::size_t LineWidth() {
  constexpr std::size_t kDefault = 80, kLeast = 64, kMost = 100;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kDefault;
  return std::clamp<std::size_t>(size.ws_col, kLeast, kMost);
}

// Breaks lines between words. Each line after the first starts at column `indent`.
std::string Wrap(std::string_view text, std::size_t indent) {
  const std::size_t width = LineWidth();
  std::string wrapped;
  std::size_t column = indent;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + word.size() > width) {
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

// The summary and the usage.
std::string HelpStart(const Command& command, const CLI::App& app) {
  return Wrap(command.Summary(), 0) + "\n\n" + Wrap("Usage: " + UsageOf(command, app), kHanging) +
         '\n';
}

// Returns what an option is, without how it works.
std::string_view FirstPart(std::string_view text) {
  std::size_t end = text.size();
  for (const std::string_view mark : {". ", "; ", ": ", " ("}) end = std::min(end, text.find(mark));
  return text.substr(0, end);
}

// Each line, and below it what it does.
std::string ExamplesText(std::string_view command) {
  const HelpGroup group = ExamplesGroup(command);
  std::string text = group.entries.empty() ? "" : fmt::format("\n{}:\n", group.title);
  for (const auto& [line, meaning] : group.entries) {
    text += fmt::format("  {}\n      {}\n", line, meaning);
  }
  return text;
}

}  // namespace

std::unique_ptr<CLI::App> AppOf(Command& command) {
  auto app = std::make_unique<CLI::App>(command.Summary(), command.Name());
  command.Define(*app);
  CheckOptionValues(*app);
  // Added last, to the group of the last options. A command without a help flag forwards --help.
  if (app->get_help_ptr() != nullptr) {
    app->add_flag_callback(
        "-q,--quiet", [] { static_cast<void>(std::freopen("/dev/null", "w", stdout)); },
        "Print nothing but errors: only files and the exit code remain");
    app->set_help_flag("-h,--help", "Print this help; -h prints it in short");
  }
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

std::vector<HelpGroup> CommandGroups(const std::vector<std::unique_ptr<Command>>& commands) {
  std::vector<HelpGroup> groups = {{"Training", {}}, {"Schedules", {}}, {"Help", {}}};
  HelpGroup& help = groups.back();
  help.entries = {{"help", "Print this help, or a command's: penstock help simulate"},
                  {"version", "Print the version"}};
  constexpr std::string_view kOfSchedules[] = {"schedules", "schedule", "validate",
                                               "simulate",  "plan",     "show",
                                               "diff",      "report",   "calibrate"};
  for (const auto& command : commands) {
    const std::string name = command->Name();
    const bool of_help = name == "completion" || name == "man";
    const bool of_schedules = std::ranges::find(kOfSchedules, name) != std::end(kOfSchedules);
    std::vector<HelpGroup::Entry>& entries = groups[of_help ? 2 : of_schedules ? 1 : 0].entries;
    // What most people look for comes first.
    entries.insert(name == "train" ? entries.begin() : entries.end(), {name, command->Summary()});
  }
  return groups;
}

HelpGroup ExamplesGroup(std::string_view command) {
  HelpGroup group{"Examples", {}};
  for (const Example& example : ExamplesOf(command)) {
    group.entries.push_back({std::string(example.line), std::string(example.meaning)});
  }
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

std::vector<HelpGroup> OptionGroups(const CLI::App& app) {
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
  return groups;
}

std::vector<HelpGroup> GroupsOf(const Command& command, const CLI::App& app) {
  std::vector<HelpGroup> groups = OptionGroups(app);
  for (HelpGroup& more : command.MoreHelp()) groups.push_back(std::move(more));
  return groups;
}

std::string HelpOfProgram(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string help = Wrap(AboutProgram(), 0) + "\n\nUsage: penstock COMMAND [ARGUMENT...]\n";
  for (const HelpGroup& group : CommandGroups(commands)) {
    help += fmt::format("\n{}:\n", group.title);
    for (const auto& [name, text] : group.entries) help += ColumnEntry(name, text, kCommandColumn);
  }
  help += ExamplesText("");
  help += "\n'penstock COMMAND --help' describes its arguments and options.\n\n";
  return help + Wrap("Exit codes: " + ProgramExitCodes() + ".", 0) + '\n';
}

std::string ShortHelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = HelpStart(command, app);
  for (const HelpGroup& group : OptionGroups(app)) {
    help += '\n' + Wrap(group.title + ":", 0) + '\n';
    for (const auto& [name, text] : group.entries) help += HelpEntry(name, FirstPart(text));
  }
  return help + ExamplesText(command.Name()) +
         fmt::format("\n'penstock {} --help' says more.\n", command.Name());
}

std::string HelpOfCommand(const Command& command, const CLI::App& app) {
  std::string help = HelpStart(command, app);
  for (const HelpGroup& group : GroupsOf(command, app)) {
    help += '\n' + Wrap(group.title + ":", 0) + '\n';
    for (const auto& [name, text] : group.entries) help += HelpEntry(name, text);
  }
  help += ExamplesText(command.Name());
  if (!app.get_footer().empty()) help += '\n' + Wrap(app.get_footer(), 0) + '\n';
  return help + '\n' + Wrap("Exit codes: " + command.ExitCodes() + ".", 0) + '\n';
}

}  // namespace penstock
