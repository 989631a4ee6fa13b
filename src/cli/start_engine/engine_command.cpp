#include "cli/start_engine/engine_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/start_engine/launcher.h"

namespace penstock {
namespace {

class EngineCommand final : public Command {
 public:
  explicit EngineCommand(const EngineEntry& entry) : entry_(entry) {}
  std::string Name() const override { return entry_.name; }
  std::string Summary() const override { return entry_.summary; }
  void Define(CLI::App& app) override {
    app_ = &app;
    // The engine parses everything after the name, including --help.
    app.set_help_flag();
    app.prefix_command();
  }
  Result<int> Run() override {
    std::vector<std::string> words = {entry_.name};
    for (const std::string& rest : app_->remaining()) words.push_back(rest);
    return BecomeEngine(std::move(words));
  }
  bool IsOfEngine() const override { return true; }

 private:
  const EngineEntry entry_;
  CLI::App* app_ = nullptr;
};

}  // namespace

Result<int> BecomeEngine(std::vector<std::string> words) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return NotFound("cannot find the folder of this program: {}", error.message());
  const std::string command = words.front();
  const bool on_mpi = command == kTrainEntry.name && RankInMpiJob().has_value();
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

std::unique_ptr<Command> MakeEngineCommand(const EngineEntry& entry) {
  return std::make_unique<EngineCommand>(entry);
}

}  // namespace penstock
