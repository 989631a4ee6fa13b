#include "base/system/run_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "base/system/own_time.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kPoll{2};  // a compiler runs for hundreds of milliseconds

// Starts the command in a process group of its own, so that it can be killed with its children.
Result<pid_t> Start(std::vector<std::string>& command, const std::string& output_path) {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_path.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = -1;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return NotFound("cannot run {}: {}", command[0], std::strerror(failed));
  return child;
}

int StatusOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

// Returns the exit status, or nullopt if the child still runs when the time is over.
std::optional<int> WaitFor(pid_t child, OwnTimeLimit limit) {
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return StatusOf(status);
    if (ended < 0 && errno != EINTR) return -1;
    if (limit.IsOver()) return std::nullopt;
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

Result<int> RunCommand(std::vector<std::string> command, const std::string& output_path,
                       std::chrono::milliseconds limit) {
  PENSTOCK_TRY(const pid_t child, Start(command, output_path));
  if (const auto status = WaitFor(child, OwnTimeLimit(limit))) return *status;
  kill(-child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return MakeError(ErrorCode::kDeadlineExceeded, "{} did not end within {} s and was killed",
                   command[0], std::chrono::duration<double>(limit).count());
}

}  // namespace penstock
