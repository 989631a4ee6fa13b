#include "cli/start_engine/engine_command.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/start_engine/launcher.h"

namespace penstock {
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

}  // namespace penstock
