#include "cli/commands/launched_job.h"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

int ExitCodeOfStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Returns the children of this process. Empty if the kernel does not list them.
std::vector<pid_t> Children() {
  std::ifstream list(fmt::format("/proc/self/task/{}/children", getpid()));
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

// Kills the process group and all children, with those that become children when their parents end.
// Returns when they have ended.
void KillRest(pid_t group) {
  kill(-group, SIGKILL);
  for (;;) {
    const std::vector<pid_t> children = Children();
    for (const pid_t child : children) kill(child, SIGKILL);
    if (waitpid(-1, nullptr, children.empty() ? WNOHANG : 0) <= 0) return;
  }
}

// Reaps the children that have ended. Returns whether `command` is one of them.
bool Reap(pid_t command, int& status) {
  bool ended = false;
  int each = 0;
  for (pid_t child = 0; (child = waitpid(-1, &each, WNOHANG)) > 0;) {
    if (child != command) continue;
    status = each;
    ended = true;
  }
  return ended;
}

// Open MPI's mpirun ends its processes one second after SIGTERM, or after a time in which it does
// not pass the signal on either. It passes SIGUSR2 on at once, which stops 'penstock train' as
// well.
bool IsOpenMpiLauncher(pid_t process) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink(fmt::format("/proc/{}/exe", process), error);
  return program.filename() == "orterun" || program.filename() == "prterun";
}

// The second stop is meant to end the job at once.
void PassOn(pid_t command, int signal, bool is_first_stop) {
  if (is_first_stop && IsOpenMpiLauncher(command)) {
    kill(command, SIGUSR2);
  } else {
    kill(-command, signal);
  }
}

bool RequestsStop(int signal) { return signal > 0 && signal != SIGCHLD && signal != SIGUSR1; }

}  // namespace

JobRunner::JobRunner() {
  // Processes of the job whose parents end become children of this process, so that it finds them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_DFL);
  sigemptyset(&caught_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) {
    if (!IsIgnored(signal)) sigaddset(&caught_, signal);
  }
  sigprocmask(SIG_BLOCK, &caught_, &original_);
}

// The command gets a process group of its own, so that a signal reaches each of its processes once.
Result<pid_t> JobRunner::Start(std::vector<std::string>& command) const {
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &original_);
  pid_t child = -1;
  const int failed =
      posix_spawnp(&child, arguments[0], nullptr, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return NotFound("cannot start {}: {}", command[0], std::strerror(failed));
  return child;
}

Result<JobEnd> JobRunner::Run(std::vector<std::string> command) {
  const Clock::time_point start = Clock::now();
  PENSTOCK_TRY(const pid_t child, Start(command));
  JobEnd end;
  int status = 0;
  bool ended = false;
  // After a stop, the other processes of the group may still write a checkpoint.
  while (!ended || (end.stopped != 0 && kill(-child, 0) == 0)) {
    const int signal = sigwaitinfo(&caught_, nullptr);
    if (ended && RequestsStop(signal)) break;  // they may ignore it
    const bool is_first_stop = RequestsStop(signal) && end.stopped == 0;
    if (RequestsStop(signal)) end.stopped = signal;
    if (signal > 0 && signal != SIGCHLD) PassOn(child, signal, is_first_stop);
    ended = Reap(child, status) || ended;
  }
  end.code = ExitCodeOfStatus(status);
  if (end.code != 0 || end.stopped != 0) KillRest(child);
  end.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return end;
}

int JobRunner::Pause(std::chrono::milliseconds time) const {
  const Clock::time_point until = Clock::now() + time;
  for (auto left = time; left.count() > 0;
       left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now())) {
    const timespec limit{left.count() / 1000, left.count() % 1000 * 1'000'000};
    const int signal = sigtimedwait(&caught_, nullptr, &limit);
    if (RequestsStop(signal)) return signal;
  }
  return 0;
}

}  // namespace penstock
