#include "cli/shell/man_page.h"

#include <algorithm>
#include <cctype>

#include "cli/help/help.h"

namespace penstock {
namespace {

// Text as roff prints it literally. A hyphen stands for itself, so that options can be searched for
// and copied. A line must not begin with a control character.
std::string Roff(std::string_view text) {
  std::string roff;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) roff += "\\&";
    begins_line = c == '\n';
    switch (c) {
      case '\\':
        roff += "\\e";
        break;
      case '-':
        roff += "\\-";
        break;
      case '~':
        roff += "\\(ti";
        break;
      case '^':
        roff += "\\(ha";
        break;
      case '`':
        roff += "\\(ga";
        break;
      case '\'':
        roff += "\\(aq";
        break;
      default:
        roff += c;
    }
  }
  return roff;
}

std::string UpperCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// No date, so that the same program always writes the same page.
std::string Title(const std::string& name) {
  return fmt::format(".TH {} 1 \"\" \"Penstock {}\" \"Penstock\"\n", Roff(UpperCase(name)),
                     PENSTOCK_VERSION);
}

std::string ManSection(std::string_view title, std::string_view text) {
  return fmt::format(".SH {}\n{}\n", title, Roff(text));
}

// The exit codes: "0 success; 1 the run failed" as one entry per code. A code's text may contain
// commas and colons, but no semicolon.
std::string ExitStatus(std::string_view codes) {
  std::string section = ".SH EXIT STATUS\n";
  for (std::size_t begin = 0; begin < codes.size();) {
    const std::size_t end = std::min(codes.find("; ", begin), codes.size());
    const std::string_view code = codes.substr(begin, end - begin);
    const std::size_t space = code.find(' ');
    const bool numbered = std::isdigit(static_cast<unsigned char>(code.front())) != 0;
    section += numbered ? fmt::format(".TP\n.B {}\n{}\n", code.substr(0, space),
                                      Roff(code.substr(space + 1)))
                        : fmt::format(".PP\n{}\n", Roff(code));
    begin = end + 2;
  }
  return section;
}

// ".SS" prints a title literally; quotes would end it.
std::string ManGroup(const HelpGroup& group, const char* macro) {
  std::string text = fmt::format("{} {}\n", macro, Roff(group.title));
  for (const auto& [name, meaning] : group.entries) {
    text += fmt::format(".TP\n.B {}\n{}\n", Roff(name), Roff(meaning));
  }
  return text;
}

std::string ManExamples(std::string_view command) {
  HelpGroup group = ExamplesGroup(command);
  group.title = "EXAMPLES";
  return group.entries.empty() ? "" : ManGroup(group, ".SH");
}

}  // namespace

std::string ManPageName(std::string_view command) { return fmt::format("penstock-{}", command); }

std::string ManPageOfProgram(const std::vector<std::unique_ptr<Command>>& commands) {
  std::string page = Title("penstock");
  page += ManSection("NAME", "penstock - pipeline-parallel training and its schedules");
  page += ".SH SYNOPSIS\n.B penstock\n.I COMMAND\n.RI [ ARGUMENT ...]\n";
  page += ManSection("DESCRIPTION", AboutProgram());
  page += ".SH COMMANDS\n";
  for (const HelpGroup& group : CommandGroups(commands)) page += ManGroup(group, ".SS");
  page += ManExamples("");
  page += ExitStatus(ProgramExitCodes());
  page += ".SH SEE ALSO\n";
  for (const auto& command : commands) {
    const bool last = command == commands.back();
    page += fmt::format(".BR {} (1){}\n", Roff(ManPageName(command->Name())), last ? "" : ",");
  }
  return page;
}

std::string ManPageOfCommand(Command& command) {
  const std::unique_ptr<CLI::App> app = AppOf(command);
  const std::string name = ManPageName(command.Name());
  std::string page = Title(name);
  page += ManSection("NAME", name + " - " + command.Summary());
  page += ManSection("SYNOPSIS", UsageOf(command, *app));
  page += ManSection("DESCRIPTION", command.Summary() + '.');
  if (!app->get_footer().empty()) page += ".PP\n" + Roff(app->get_footer()) + '\n';
  page += ".SH OPTIONS\n";
  for (const HelpGroup& group : GroupsOf(command, *app)) page += ManGroup(group, ".SS");
  page += ManExamples(command.Name());
  page += ExitStatus(command.ExitCodes());
  return page + ".SH SEE ALSO\n.BR penstock (1)\n";
}

}  // namespace penstock
