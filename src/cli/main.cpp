// penstock: command line of the engine. Parses, runs one command, maps errors to exit codes.
#include <cstdio>
#include <exception>
#include <vector>

#include "base/allocator.h"
#include "cli/commands.h"

namespace penstock {
namespace {

int Fail(const Error& error) {
  fmt::print(stderr, "penstock: error: {}\n", error.message);
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInfeasible:
    case ErrorCode::kNotFound:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Pipeline-parallel training engine: schedules as data, from validator to trained model.",
      "penstock");
  app.set_version_flag("--version", "penstock " PENSTOCK_VERSION);
  app.require_subcommand(1);
  app.footer("'penstock COMMAND --help' documents every option.");

  const std::vector<std::unique_ptr<Command>> commands = Commands();
  for (const auto& command : commands) {
    command->Define(*app.add_subcommand(command->Name(), command->Summary()));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitOk;
  } catch (const CLI::CallForAllHelp&) {
    fmt::print("{}", app.help("", CLI::AppFormatMode::All));
    return kExitOk;
  } catch (const CLI::CallForVersion&) {
    fmt::print("{}\n", app.version());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::string where = "penstock";
    for (const CLI::App* sub : app.get_subcommands()) where += " " + sub->get_name();
    fmt::print(stderr, "penstock: error: {} (see '{} --help')\n", error.what(), where);
    return kExitUsage;
  }
  for (const auto& command : commands) {
    if (!app.got_subcommand(command->Name())) continue;
    const Result<int> code = command->Run();
    return code ? *code : Fail(code.error());
  }
  return kExitUsage;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::KeepFreedMemory();
  try {
    return penstock::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "penstock: internal error: {}\n", error.what());
    return penstock::kExitFailed;
  }
}
