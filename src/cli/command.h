// One subcommand of the program: its options and what it does.
//
// Adding one is a file with a Command and a factory, and one line in commands.cpp; one that needs
// libtorch has its line in engine_commands.cpp and one in engine_table.h.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"

namespace penstock {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,    // a run failed, or `validate` found a fault
  kExitUsage = 2,     // bad usage or input
  kExitSignal = 128,  // and a signal's number: `train` was stopped by it
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string Name() const = 0;
  virtual std::string Summary() const = 0;  // one line
  // Adds the options; what they bind to must live in the command.
  virtual void Define(CLI::App& app) = 0;
  // The exit code; an Error is printed as one line and mapped to an exit code by its kind.
  virtual Result<int> Run() = 0;
  // What --help lists behind the options: whole lines.
  virtual std::string MoreHelp() const { return ""; }
  // What --help says of the exit codes.
  virtual std::string ExitCodes() const {
    return "0 success; 1 the run failed; 2 bad usage or input";
  }
};

}  // namespace penstock
