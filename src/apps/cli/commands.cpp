#include "cli/commands.h"

namespace penstock {

// Each is defined in the file with its name.
std::unique_ptr<Command> MakeSchedulesCommand();
std::unique_ptr<Command> MakeScheduleCommand();
std::unique_ptr<Command> MakeValidateCommand();
std::unique_ptr<Command> MakeSimulateCommand();
std::unique_ptr<Command> MakePlanCommand();
std::unique_ptr<Command> MakeShowCommand();
std::unique_ptr<Command> MakeDiffCommand();
std::unique_ptr<Command> MakeReportCommand();
std::unique_ptr<Command> MakeCalibrateCommand();
std::unique_ptr<Command> MakeWatchCommand();
std::unique_ptr<Command> MakeCheckpointCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeLaunchCommand();
std::unique_ptr<Command> MakeCompletionCommand();
std::unique_ptr<Command> MakeManCommand();

std::vector<std::unique_ptr<Command>> Commands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make :
       {MakeSchedulesCommand, MakeScheduleCommand, MakeValidateCommand, MakeSimulateCommand,
        MakePlanCommand, MakeShowCommand, MakeDiffCommand, MakeReportCommand, MakeCalibrateCommand,
        MakeWatchCommand, MakeCheckpointCommand, MakeTokenizeCommand, MakeLaunchCommand,
        MakeCompletionCommand, MakeManCommand}) {
    commands.push_back(make());
  }
#ifdef PENSTOCK_ENGINE
  for (auto& command : EngineDefinitions()) commands.push_back(std::move(command));
#endif
  return commands;
}

}  // namespace penstock
