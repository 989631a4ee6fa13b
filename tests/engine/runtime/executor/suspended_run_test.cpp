// A run whose process is stopped for longer than its watchdog.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "runtime/executor/run.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kWatchdog{2000};

// An action of the second rank writes to `began` and then waits for `release`, while the first rank
// waits for its gradient. Returns the error; empty if the run has succeeded.
std::string RunWithPause(int began, int release) {
  const Schedule schedule = SmallGpipe(2, 1);
  Probes probes(schedule, [&](const Part& part, std::int64_t) {
    if (part != Forward(1, 0).first) return;
    char byte = 'x';
    PENSTOCK_CHECK(write(began, &byte, 1) == 1 && read(release, &byte, 1) == 1, "the pipes broke");
  });
  RunOptions options = {.watchdog = kWatchdog};
  options.on_stuck = [](const Error&) { std::_Exit(3); };
  const Status status = RunRanks(schedule, probes.stages, options);
  return status ? "" : status.error().line();
}

TEST(SuspendedRun, DoesNotCountTheTimeInWhichItIsStopped) {
  std::array<int, 2> began{}, release{}, result{};
  ASSERT_EQ(pipe2(began.data(), O_CLOEXEC) | pipe2(release.data(), O_CLOEXEC) |
                pipe2(result.data(), O_CLOEXEC),
            0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string error = RunWithPause(began[1], release[0]);
    const ssize_t written = write(result[1], error.data(), error.size());
    std::_Exit(written == static_cast<ssize_t>(error.size()) && error.empty() ? 0 : 1);
  }
  close(result[1]);
  char byte = 'x';
  ASSERT_EQ(read(began[0], &byte, 1), 1);
  // The watchdog looks 20 times per second, and has seen that the action began.
  std::this_thread::sleep_for(kWatchdog / 10);
  kill(child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  std::this_thread::sleep_for(kWatchdog + kWatchdog / 4);
  kill(child, SIGCONT);
  std::this_thread::sleep_for(kWatchdog / 10);
  ASSERT_EQ(write(release[1], &byte, 1), 1);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::array<char, 500> error{};
  const ssize_t length = read(result[0], error.data(), error.size() - 1);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0 && length == 0) << error.data();
}

}  // namespace
}  // namespace penstock
