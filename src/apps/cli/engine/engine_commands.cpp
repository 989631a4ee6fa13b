// The commands of penstock-engine.
#include "cli/commands.h"

namespace penstock {

// Each is defined in the file with its name, which may come first in a batch.
// NOLINTBEGIN(readability-redundant-declaration)
std::unique_ptr<Command> MakeTrainCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeEvalCommand();
std::unique_ptr<Command> MakeGraphCommand();
std::unique_ptr<Command> MakeCompileCommand();
std::unique_ptr<Command> MakeProfileCommand();
std::unique_ptr<Command> MakeExportCommand();
std::unique_ptr<Command> MakeCheckDeviceCommand();
// NOLINTEND(readability-redundant-declaration)

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make :
       {MakeTrainCommand, MakeGenerateCommand, MakeEvalCommand, MakeGraphCommand,
        MakeCompileCommand, MakeProfileCommand, MakeExportCommand, MakeCheckDeviceCommand}) {
    commands.push_back(make());
  }
  return commands;
}

}  // namespace penstock
