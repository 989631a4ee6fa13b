// The program: finds the command that the first argument names, runs it, and maps errors to exit
// codes.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/exception_line.h"
#include "base/notes.h"
#include "base/result.h"
#include "base/system/allocator.h"
#include "base/text/deprecated_names.h"
#include "base/text/nearest.h"
#include "base/text/option_name.h"
#include "base/text/quote.h"
#include "cli/commands.h"
#include "cli/help/help.h"
#include "cli/help/other_names.h"
#include "cli/output/print_error.h"

namespace penstock {
namespace {

// Returns this process's rank in the MPI job that mpirun, srun or another MPI launcher has started,
// judged by the variables that Open MPI, PMIx and PMI set. Empty if there is none.
std::optional<int> RankInMpiJob() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  }
  return std::nullopt;
}

// Replaces this process by penstock-engine, from the same folder and with these arguments; the
// first is the command. Returns only if there is no such program.
Result<int> BecomeEngine(std::vector<std::string> words) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return NotFound("cannot find the folder of this program: {}", error.message());
  const std::string command = words.front();
  const bool on_mpi = command == "train" && RankInMpiJob().has_value();
  std::string program =
      (self.parent_path() / (on_mpi ? "penstock-engine-mpi" : "penstock-engine")).string();
  std::vector<char*> pointers = {program.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  if (on_mpi && errno == ENOENT) {
    return NotFound(
        "this process was started by an MPI launcher, but {} does not exist: install an MPI "
        "library (libopenmpi-dev, openmpi-bin) and build again",
        program);
  }
  return NotFound("cannot start {}, which 'penstock {}' needs: {}", program, command,
                  std::strerror(errno));
}

using CommandList = std::vector<std::unique_ptr<Command>>;

// Prints the error and returns its exit code. The processes of an MPI job usually fail alike, and
// mpirun ends the job once the first of them has exited. So the others give it time to report.
int Fail(const Error& error) {
  constexpr std::chrono::seconds kTimeToReport{5};
  if (RankInMpiJob().value_or(0) > 0) std::this_thread::sleep_for(kTimeToReport);
  PrintError(error.line());
  return ExitCodeOf(error);
}

// A usage error; `help` is the command whose --help describes the usage.
Error UsageError(const std::string& message, const std::string& help) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} (see '{} --help')", message, help)};
}

int RefuseUsage(const std::string& message) { return Fail(UsageError(message, "penstock")); }

std::string UnknownOption(const std::string& word, const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  const std::string name = word.substr(0, word.find('='));
  const std::optional<std::string> ours = OurNameOf(name, app);
  std::string hint;
  if (!ours) {
    hint = Suggestion(name, {names.begin(), names.end()});
  } else if (!ours->empty()) {
    hint = fmt::format("; did you mean '{}'?", *ours);
  }
  return fmt::format("there is no option {}{}", Quote(name), hint);
}

// What is wrong with the arguments. An unknown argument comes first: it may be the misspelled form
// of the one that CLI11 misses.
std::string Explain(const CLI::ParseError& error, const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  for (const std::string& word : unknown) {
    if (word == "--") break;
    if (word.size() > 1 && word.front() == '-') return UnknownOption(word, app);
  }
  if (!unknown.empty() && unknown.front() != "--")
    return fmt::format("unexpected argument {}", Quote(unknown.front()));
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr &&
      message.ends_with(" missing")) {  // "--ranks: 1 required INT missing"
    return message.substr(0, message.find(':')) + " needs a value";
  }
  return message;
}

// Returns the current name of an option of `app`, and adds a note if `option` is a former one.
std::string CurrentOption(std::string_view option, const CLI::App& app) {
  std::string current(CurrentName(option));
  if (app.get_option_no_throw(current) != nullptr) return current;
  for (const auto& [former, name] : kFormerFieldNames) {
    std::string renamed = OptionName(name);
    if (current != OptionName(former) || app.get_option_no_throw(renamed) == nullptr) continue;
    NoteFormerName(former, name);
    return renamed;
  }
  return current;
}

bool IsHelp(const std::string& word) { return word == "-h" || word == "--help"; }

Result<int> RunCommand(Command& command, std::vector<std::string> words) {
  if (command.IsOfEngine() && std::ranges::none_of(words, IsHelp)) {
    words.insert(words.begin(), command.Name());
    return BecomeEngine(std::move(words));
  }
  const std::unique_ptr<CLI::App> app = AppOf(command);
  for (std::string& word : words) {
    if (word == "--") break;  // what follows is for another program
    const std::size_t name = std::min(word.find('='), word.size());
    word.replace(0, name, CurrentOption(std::string_view(word).substr(0, name), *app));
  }
  const bool is_short = std::ranges::find(words, "-h") != words.end();
  std::reverse(words.begin(), words.end());  // CLI11 expects this order
  try {
    app->parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", is_short ? ShortHelpOfCommand(command, *app) : HelpOfCommand(command, *app));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return command.Refuse(UsageError(Explain(error, *app), "penstock " + command.Name()));
  }
  return command.Run();
}

// The error for a first argument that is not a command.
int RefuseWord(const std::string& word, const CommandList& commands) {
  std::vector<std::string> names = {"help", "version"};
  for (const auto& command : commands) names.push_back(command->Name());
  for (const auto& command : EngineDefinitions()) names.push_back(command->Name());
  const std::string name = word.substr(0, word.find('='));
  if (name.starts_with('-')) {
    return RefuseUsage(fmt::format("there is no option {} before the command{}", Quote(name),
                                   Suggestion(name, {"--help", "--version"})));
  }
  for (const auto& command : EngineDefinitions()) {
    if (word == command->Name()) {
      return RefuseUsage(fmt::format(
          "this build is without '{}', which needs libtorch; build the preset 'release'", word));
    }
  }
  return RefuseUsage(fmt::format("there is no command {}{}", Quote(word),
                                 Suggestion(word, {names.begin(), names.end()})));
}

int Main(std::vector<std::string> words) {
  const CommandList commands = Commands();
  const std::string first = words.empty() ? "help" : words.front();
  if (first == "version" || first == "--version" || first == "-V") {
    fmt::print("penstock {}\n", PENSTOCK_VERSION);
    return kExitOk;
  }
  if (first == "help" || first == "--help" || first == "-h") {
    const bool of_program = words.size() < 2 || words[1] == "help" || words[1] == "version" ||
                            words[1].starts_with("-");
    if (of_program) {
      fmt::print("{}", HelpOfProgram(commands));
      return kExitOk;
    }
    words = {words[1], "--help"};
  }
  for (const auto& command : commands) {
    if (command->Name() != words.front()) continue;
    const Result<int> code = RunCommand(*command, {words.begin() + 1, words.end()});
    for (const std::string& note : TakeNotes()) {
      fmt::print(stderr, "penstock: note: {}\n", Printable(note));
    }
    return code ? *code : Fail(code.error());
  }
  return RefuseWord(words.front(), commands);
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::KeepFreedMemory();
  try {
    return penstock::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    const std::string line = penstock::Printable(penstock::ExceptionLine(error));
    const bool is_fault = !line.starts_with("out of memory");
    fmt::print(stderr, "penstock: {}error: {}\n", is_fault ? "internal " : "", line);
    return penstock::kExitFailed;
  }
}
