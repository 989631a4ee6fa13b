#include "cli/commands.h"

#include <array>

namespace penstock {

// Each is defined in the file of its name.
std::unique_ptr<Command> MakeSchedulesCommand();
std::unique_ptr<Command> MakeScheduleCommand();
std::unique_ptr<Command> MakeValidateCommand();
std::unique_ptr<Command> MakeSimulateCommand();
std::unique_ptr<Command> MakeShowCommand();
std::unique_ptr<Command> MakeReportCommand();
#ifdef PENSTOCK_ENGINE
std::unique_ptr<Command> MakeTrainCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeEvalCommand();
std::unique_ptr<Command> MakeGraphCommand();
std::unique_ptr<Command> MakeCompileCommand();
#endif

std::span<const CommandFactory> Commands() {
  static constexpr std::array kCommands = {
      MakeSchedulesCommand, MakeScheduleCommand, MakeValidateCommand,
      MakeSimulateCommand,  MakeShowCommand,     MakeReportCommand,
#ifdef PENSTOCK_ENGINE
      MakeTrainCommand,     MakeGenerateCommand, MakeEvalCommand,
      MakeGraphCommand,     MakeCompileCommand,
#endif
  };
  return kCommands;
}

}  // namespace penstock
