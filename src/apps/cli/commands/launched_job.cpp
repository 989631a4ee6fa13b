#include "cli/commands/launched_job.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "base/system/machine_name.h"
#include "base/system/own_time.h"
#include "base/system/repeated_signal.h"

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

// Removes the files of this user's mpirun sessions that have begun since `start` and whose mpirun
// has ended without removing them: in the temporary folder, and the shared memory of their
// processes. Requires: none of these processes is left.
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

using Clock = std::chrono::steady_clock;

int ExitCodeOfStatus(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// How long an mpirun may take to notice that its processes have ended.
constexpr std::chrono::seconds kLauncherLimit{20};
constexpr timespec kLook{1, 0};

// Returns the children of a process with one thread. Empty if the kernel does not list them.
std::vector<pid_t> Children(pid_t process = getpid()) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", process));
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

// Kills the process group and all children, also processes that become children when their parents
// end. Returns when they have ended.
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

bool HasEnded(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string stat;
  std::getline(file, stat);
  const std::size_t name_end = stat.rfind(") ");  // names may contain anything
  return name_end != std::string::npos && stat.substr(name_end + 2).starts_with('Z');
}

// Whether mpirun has processes, and none of them runs any more.
bool OnlyLauncherRuns(pid_t launcher) {
  const std::vector<pid_t> children = Children(launcher);
  return !children.empty() && std::ranges::all_of(children, HasEnded) &&
         IsOpenMpiLauncher(launcher);
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
  const std::time_t begin = std::time(nullptr);
  PENSTOCK_TRY(const pid_t child, Start(command));
  JobEnd end;
  int status = 0;
  bool ended = false;
  StopSignals stops;
  OwnTimeLimit limit(kLauncherLimit);
  // After a stop, the other processes of the group may still write a checkpoint.
  while (!ended || (end.stopped != 0 && kill(-child, 0) == 0)) {
    const int signal = sigtimedwait(&caught_, nullptr, &kLook);
    if (ended || !OnlyLauncherRuns(child)) limit.Restart();
    if (limit.IsOver()) kill(child, SIGKILL);
    const StopSignal stop = RequestsStop(signal) ? stops.Classify() : StopSignal::kRepeat;
    if (ended && stop == StopSignal::kSecond) break;  // they may ignore it
    if (stop != StopSignal::kRepeat) end.stopped = signal;
    if (stop != StopSignal::kRepeat || signal == SIGUSR1) {
      PassOn(child, signal, stop == StopSignal::kFirst);
    }
    ended = Reap(child, status) || ended;
  }
  end.code = ExitCodeOfStatus(status);
  if (end.code != 0 || end.stopped != 0) {
    KillRest(child);
    RemoveMpiFiles(begin);
  }
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
