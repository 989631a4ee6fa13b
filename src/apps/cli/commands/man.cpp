// penstock man: prints or writes manual pages.
#include <algorithm>

#include "base/files.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "cli/commands.h"
#include "cli/help/offered_values.h"
#include "cli/shell/man_page.h"

namespace penstock {
namespace {

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
