#include "cli/commands/mpi_files.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "base/system/machine_name.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSession = "pid.";  // and the process number of mpirun

void ForEach(const fs::path& folder, const std::function<void(const fs::path&)>& function) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    function(at->path());
  }
}

// The folders in which Open MPI keeps this user's sessions, in its order of preference.
fs::path SessionsFolder() {
  const std::string name = fmt::format("ompi.{}.{}", MachineName(), getuid());
  for (const char* const variable : {"TMPDIR", "TEMP", "TMP"}) {
    if (const char* const folder = std::getenv(variable)) return fs::path(folder) / name;
  }
  return fs::path("/tmp") / name;
}

// Whether a session began since `start`, and its mpirun has ended.
bool IsLeft(const fs::path& session, std::time_t start) {
  const std::string name = session.filename().string();
  pid_t process = 0;
  const char* const end = name.data() + name.size();
  if (!name.starts_with(kSession)) return false;
  const auto parsed = std::from_chars(name.data() + kSession.size(), end, process);
  if (parsed.ec != std::errc() || parsed.ptr != end) return false;
  struct stat status {};
  return stat(session.c_str(), &status) == 0 && status.st_mtime >= start && kill(process, 0) != 0 &&
         errno == ESRCH;
}

// Removes vader_segment.PROCESS.USER.JOB.RANK, where JOB begins with the session's number. The
// session's contact.txt is "NUMBER.0;tcp://...", with that number in its upper half.
void RemoveSharedMemory(const fs::path& session) {
  std::uint32_t number = 0;
  if (!(std::ifstream(session / "contact.txt") >> number)) return;
  const std::string prefix =
      fmt::format("vader_segment.{}.{}.{:x}", MachineName(), getuid(), number >> 16U);
  ForEach("/dev/shm", [&](const fs::path& file) {
    std::error_code error;  // it may be gone
    const std::string name = file.filename().string();
    const std::size_t job_end = prefix.size() + 4;  // 16 bits for the job within the session
    if (name.starts_with(prefix) && name.find('.', prefix.size()) == job_end) {
      fs::remove(file, error);
    }
  });
}

}  // namespace

void RemoveMpiFiles(std::time_t start) {
  const fs::path sessions = SessionsFolder();
  std::error_code error;  // ignored: nobody needs the rest
  ForEach(sessions, [&](const fs::path& session) {
    if (!IsLeft(session, start)) return;
    RemoveSharedMemory(session);
    fs::remove_all(session, error);
  });
  rmdir(sessions.c_str());  // fails unless it is empty
}

}  // namespace penstock
