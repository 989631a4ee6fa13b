// The commands of penstock-engine.
#include "cli/commands.h"

namespace penstock {

// Each is defined in the file with its name.
std::unique_ptr<Command> MakeTrainCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeEvalCommand();
std::unique_ptr<Command> MakeGraphCommand();
std::unique_ptr<Command> MakeCompileCommand();
std::unique_ptr<Command> MakeExportCommand();

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make : {MakeTrainCommand, MakeGenerateCommand, MakeEvalCommand, MakeGraphCommand,
                          MakeCompileCommand, MakeExportCommand}) {
    commands.push_back(make());
  }
  return commands;
}

}  // namespace penstock
