// The program: finds the command that the first argument names, runs it, and maps errors to exit
// codes.
#include <poll.h>
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
#include <system_error>
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
#include "cli/help/meant_option.h"
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
  const std::string name = word.substr(0, word.find('='));
  return fmt::format("there is no option {}{}", Quote(name), MeantOption(name, app));
}

// The message of CLI11, whose own words say too little.
std::string InOurWords(const CLI::ParseError& error) {
  std::string message = error.what();
  const std::string option = message.substr(0, message.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    // "--ranks: 1 required INT missing", "--ranks: At Most 1 required but received 2"
    if (message.ends_with(" missing")) return option + " needs a value";
    if (message.find(": At Most 1 ") != message.npos) return option + " is given more than once";
  }
  constexpr std::string_view kNoNumber = "Could not convert: ";  // "--top-p = a"
  if (!message.starts_with(kNoNumber)) return message;
  const std::size_t equals = message.find(" = ");
  return fmt::format("{}: {} is not a number",
                     message.substr(kNoNumber.size(), equals - kNoNumber.size()),
                     Quote(message.substr(equals + 3)));
}

// Returns an error for "-model gpt2", which CLI11 reads as the option -m with the value "odel".
std::optional<std::string> LongOptionAfterOneDash(const std::vector<std::string>& words,
                                                  const CLI::App& app) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.size() < 3 || word[0] != '-' || word[1] == '-') continue;
    if (NamesLongOption(word.substr(0, word.find('=')), app)) return UnknownOption(word, app);
  }
  return std::nullopt;
}

// What is wrong with the arguments. An unknown argument comes first: it may be the misspelled form
// of the one that CLI11 misses.
std::string Explain(const CLI::ParseError& error, const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining();
  for (const std::string& word : unknown) {
    if (word == "--") break;
    if (word.size() > 1 && word.front() == '-') return UnknownOption(word, app);
  }
  if (!unknown.empty() && unknown.front() != "--") {
    const bool has_model = app.get_option_no_throw("--model") != nullptr;
    return fmt::format(
        "unexpected argument {}{}", Quote(unknown.front()),
        has_model ? fmt::format("; is it of an option, as --model {}?", Printable(unknown.front()))
                  : "");
  }
  return InOurWords(error);
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

// Returns an error for "--gated false": the value of a flag follows '='.
std::optional<std::string> FlagWithValue(const std::vector<std::string>& words,
                                         const CLI::App& app) {
  for (std::size_t i = 0; i + 1 < words.size() && words[i] != "--"; ++i) {
    const std::string& value = words[i + 1];
    if (!words[i].starts_with("--") || (value != "true" && value != "false")) continue;
    const CLI::Option* const option = app.get_option_no_throw(words[i]);
    if (option == nullptr || option->get_expected_max() != 0) continue;
    return fmt::format("{} {}: write {}={}", words[i], value, words[i], value);
  }
  return std::nullopt;
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
  if (const auto error = FlagWithValue(words, *app)) {
    return command.Refuse(UsageError(*error, "penstock " + command.Name()));
  }
  if (const auto error = LongOptionAfterOneDash(words, *app)) {
    return command.Refuse(UsageError(*error, "penstock " + command.Name()));
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
          "this build has no '{}', which needs torch: run 'pip install torch' and 'pip install "
          ".[torch]' in the folder of Penstock (about ten minutes on 2 cores), or ./run",
          word));
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

// Whether who reads stdout has closed it, as 'head' does, and so wants no more.
bool IsStdoutClosed() {
  pollfd output = {.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// Returns the exit code, or reports that stdout did not take all of the output, as on a full disk.
int AfterOutput(int code) {
  const bool is_flushed = std::fflush(stdout) == 0;
  if ((is_flushed && std::ferror(stdout) == 0) || IsStdoutClosed()) return code;
  PrintError(fmt::format("cannot write to stdout{}",
                         is_flushed ? "" : fmt::format(": {}", std::strerror(errno))));
  return kExitFailed;
}

// Prints what was thrown. Returns the exit code.
int ReportException(const std::exception& error) {
  // fmt throws what the C library reports.
  const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
  if (of_system != nullptr && std::ferror(stdout) != 0) {
    PrintError(fmt::format("cannot write to stdout: {}", of_system->code().message()));
    return kExitFailed;
  }
  const std::string line = Printable(ExceptionLine(error));
  const bool is_fault = !line.starts_with("out of memory");
  fmt::print(stderr, "penstock: {}error: {}\n", is_fault ? "internal " : "", line);
  return kExitFailed;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::KeepFreedMemory();
  try {
    return penstock::AfterOutput(penstock::Main({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    return penstock::ReportException(error);
  }
}
