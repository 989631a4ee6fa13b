// penstock man: prints or writes manual pages.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/command/command.h"
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/help/offered_values.h"

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

// "penstock-simulate" for "simulate".
std::string ManPageName(std::string_view command) { return fmt::format("penstock-{}", command); }

// penstock(1): the program and its commands.
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

// penstock-COMMAND(1): what --help prints.
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

using CommandList = std::vector<std::unique_ptr<Command>>;

class ManCommand final : public Command {
 public:
  std::string Name() const override { return "man"; }
  std::string Summary() const override { return "Print or write manual pages"; }

  void Define(CLI::App& app) override {
    Offer(app.add_option("COMMAND", names_, "The page of this command (default: the program's)"),
          [] {
            OfferedValues offered;
            for (const auto& command : Commands()) {
              offered.values.push_back({command->Name(), command->Summary()});
            }
            return offered;
          });
    app.add_option("--directory", folder_,
                   "Write the pages of these commands (default: all and the program's) to this "
                   "folder, as FOLDER/penstock-COMMAND.1")
        ->type_name("FOLDER");
    app.footer("To read a page: penstock man simulate | man -l -");
  }

  Result<int> Run() override {
    const CommandList commands = Commands();
    std::vector<Command*> chosen;
    for (const std::string& name : names_) {
      PENSTOCK_TRY(Command * command, Find(name, commands));
      chosen.push_back(command);
    }
    if (folder_.empty() && names_.size() > 1) {
      return InvalidArgument("one page is printed at a time; write several by --directory FOLDER");
    }
    if (names_.empty()) {
      PENSTOCK_TRY_STATUS(Put("penstock", ManPageOfProgram(commands)));
      if (folder_.empty()) return kExitOk;
      for (const auto& command : commands) chosen.push_back(command.get());
    }
    for (Command* command : chosen) {
      PENSTOCK_TRY_STATUS(Put(ManPageName(command->Name()), ManPageOfCommand(*command)));
    }
    return kExitOk;
  }

 private:
  static Result<Command*> Find(const std::string& name, const CommandList& commands) {
    std::vector<std::string> names;
    for (const auto& command : commands) {
      if (command->Name() == name) return command.get();
      names.push_back(command->Name());
    }
    return NotFound("there is no command {}{}", Quote(name),
                    Suggestion(name, {names.begin(), names.end()}));
  }

  Status Put(const std::string& name, const std::string& page) const {
    if (folder_.empty()) {
      fmt::print("{}", page);
      return {};
    }
    return WriteFileAtomically(fmt::format("{}/{}.1", folder_, name), page);
  }

  std::vector<std::string> names_;
  std::string folder_;
};

}  // namespace

std::unique_ptr<Command> MakeManCommand() { return std::make_unique<ManCommand>(); }

}  // namespace penstock
