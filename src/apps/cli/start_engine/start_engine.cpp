#include "cli/start_engine/start_engine.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

namespace penstock {

std::optional<int> RankInMpiJob() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  }
  return std::nullopt;
}

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
