// One subcommand of the program: its options and its implementation.
//
// To add one, write a file with a Command and a factory, and add a line to commands.cpp. The
// options of a command that needs libtorch are in definitions/, and its Run() is in engine/.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,    // a run failed, or `validate` or `checkpoint` found a fault
  kExitUsage = 2,     // bad usage or input
  kExitSignal = 128,  // plus the number of the signal that stopped `train`
};

// Lines of --help and of the manual below one title: names with their meanings.
struct HelpGroup {
  struct Entry {
    std::string name, text;
  };
  std::string title;
  std::vector<Entry> entries;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string Name() const = 0;
  virtual std::string Summary() const = 0;  // one line
  // Adds the options, which must bind to members of the command.
  virtual void Define(CLI::App& app) = 0;
  // Returns the exit code. An Error is printed as one line and mapped to an exit code by its kind.
  virtual Result<int> Run() = 0;
  // Called instead of Run for arguments that are wrong. Returns their error or, if it has been
  // reported, an exit code.
  virtual Result<int> Refuse(Error error) { return tl::unexpected(std::move(error)); }
  // What the usage line shows after the options.
  virtual std::string Operands() const { return ""; }
  // What --help lists after the options.
  virtual std::vector<HelpGroup> MoreHelp() const { return {}; }
  // The exit codes as --help prints them.
  virtual std::string ExitCodes() const {
    return "0 success; 1 the run failed; 2 bad usage or input";
  }
  // Whether another program, penstock-engine, runs the command.
  virtual bool IsOfEngine() const { return false; }
};

// Returns a command's options and --help. Requires that the command outlives them.
std::unique_ptr<CLI::App> AppOf(Command& command);

}  // namespace penstock
