// Processes of a run; some are killed or stopped.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <future>

#include "tests/engine/tcp/tcp_loopback.h"

namespace penstock {
namespace {

// A process that is killed at the end.
class ChildProcess {
 public:
  // The child calls function(report), then ends.
  template <class Function>
  explicit ChildProcess(Function&& function) {
    PENSTOCK_CHECK(pipe(pipe_.data()) == 0);
    process_ = fork();
    PENSTOCK_CHECK(process_ >= 0);
    if (process_ > 0) return;
    function([this](const std::string& line) {
      const std::string text = line + "\n";
      PENSTOCK_CHECK(write(pipe_[1], text.data(), text.size()) == std::ssize(text));
    });
    _exit(0);
  }
  ChildProcess(ChildProcess&& other) noexcept
      : process_(std::exchange(other.process_, -1)), pipe_(std::exchange(other.pipe_, {-1, -1})) {}
  ~ChildProcess() {
    if (process_ < 0) return;
    Signal(SIGKILL);
    waitpid(process_, nullptr, 0);
    for (const int end : pipe_) close(end);
  }

  void Signal(int signal) const { kill(process_, signal); }
  // Waits for the next line that the child reports.
  std::string Line() const {
    std::string line;
    for (char next = 0; read(pipe_[0], &next, 1) == 1 && next != '\n';) line += next;
    return line;
  }

 private:
  pid_t process_ = -1;
  std::array<int, 2> pipe_{-1, -1};
};

// Three connected processes. Each reports the reason of an abort and then waits for its end: others
// may notice one that leaves before the one that was killed.
std::vector<ChildProcess> StartProcesses() {
  TcpListeners listeners(3);
  TcpRun run{0, listeners.addresses, kTestSecret, ""};
  std::vector<ChildProcess> processes;
  for (int process = 0; process < 3; ++process) {
    processes.emplace_back([&](const auto& report) {
      run.process = process;
      run.machine = fmt::format("node{}", process);
      const auto group = listeners.Connect(run).value();
      std::promise<Error> aborted;
      Channel channel(*group);
      channel.Open([](int, const FrameTag&, const Message&) {},
                   [&](const Error& reason) { aborted.set_value(reason); });
      report("connected");
      report(aborted.get_future().get().message);
      pause();
    });
  }
  for (const ChildProcess& process : processes) EXPECT_EQ(process.Line(), "connected");
  return processes;
}

TEST(TcpProcessesTest, KilledProcessIsReportedByAllOthers) {
  const auto processes = StartProcesses();
  processes[1].Signal(SIGKILL);
  for (const int other : {0, 2}) {
    EXPECT_EQ(processes[other].Line(),
              "process 1 on node1 is gone: it has ended or its connection is broken");
  }
}

TEST(TcpProcessesTest, StoppedProcessIsReportedByAllOthers) {
  setenv("PENSTOCK_PROCESS_TIMEOUT", "3", /*overwrite=*/1);
  const auto processes = StartProcesses();
  unsetenv("PENSTOCK_PROCESS_TIMEOUT");
  processes[0].Signal(SIGSTOP);
  for (const int other : {1, 2}) {
    EXPECT_EQ(processes[other].Line(), "process 0 on node0 is gone: it has not responded for 3 s");
  }
}

}  // namespace
}  // namespace penstock
