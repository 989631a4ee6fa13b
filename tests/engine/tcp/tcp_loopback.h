// Processes of a run, emulated within this one and connected by TCP.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tcp/tcp_process_group.h"

namespace penstock {

inline const std::string kTestSecret = "a secret of tests";

// The listeners of a run's processes on this machine.
class TcpListeners {
 public:
  explicit TcpListeners(int processes) {
    for (int process = 0; process < processes; ++process) {
      listeners_.push_back(OpenTcpListener("127.0.0.1").value());
      addresses.push_back(listeners_.back().address);
    }
  }

  // Connects a process, on any thread. Each is connected once.
  Result<std::unique_ptr<ProcessGroup>> Connect(const TcpRun& run) {
    return ConnectTcpProcesses(std::move(listeners_[run.process]), run);
  }

  std::vector<std::string> addresses;  // of the runs; may be changed

 private:
  std::vector<TcpListener> listeners_;
};

// Starts to connect a process. Returns its error, or an empty text.
inline std::future<std::string> StartToConnect(
    TcpListeners& listeners, int process, const std::string& secret = kTestSecret,
    std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  const TcpRun run{process, listeners.addresses, secret, "", limit};
  return std::async(std::launch::async, [&listeners, run] {
    auto group = listeners.Connect(run);
    if (!group) return group.error().line();
    (*group)->Leave();
    return std::string();
  });
}

inline Socket ConnectToListener(const std::string& address) {
  OwnTimeLimit limit(std::chrono::minutes(1));
  return ConnectTcp(ParseTcpAddress(address).value(), limit).value();
}

// Connects all processes, which have the options of `run`. Returns their groups, by process.
// Destroying a group makes a process vanish for the others.
inline std::vector<std::unique_ptr<ProcessGroup>> ConnectLoopback(int processes, TcpRun run) {
  TcpListeners listeners(processes);
  run.addresses = listeners.addresses;
  run.secret = kTestSecret;
  std::vector<std::unique_ptr<ProcessGroup>> groups(processes);
  std::vector<std::thread> threads;
  for (int process = 0; process < processes; ++process) {
    threads.emplace_back([&, process, own = run]() mutable {
      own.process = process;
      groups[process] = listeners.Connect(own).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

inline std::vector<std::unique_ptr<ProcessGroup>> MakeTcpLoopback(int processes) {
  return ConnectLoopback(processes, {});
}

// The frames are authenticated, as between machines.
inline std::vector<std::unique_ptr<ProcessGroup>> MakeAuthenticatedLoopback(int processes) {
  TcpRun run;
  run.authenticate_frames = true;
  return ConnectLoopback(processes, run);
}

}  // namespace penstock
