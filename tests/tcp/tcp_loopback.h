// Hosts within this process that are connected by TCP.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tcp/tcp_hosts.h"

namespace penstock {

inline const std::string kTestSecret = "a secret of tests";

// The listeners of a run's hosts on this machine.
class TcpListeners {
 public:
  explicit TcpListeners(int hosts) {
    for (int host = 0; host < hosts; ++host) {
      listeners_.push_back(OpenTcpListener("127.0.0.1").value());
      addresses.push_back(listeners_.back().address);
    }
  }

  // Connects a host, on any thread. Each is connected once.
  Result<std::unique_ptr<HostGroup>> Connect(const TcpRun& run) {
    return ConnectTcpHosts(std::move(listeners_[run.host]), run);
  }

  std::vector<std::string> addresses;  // of the runs; may be changed

 private:
  std::vector<TcpListener> listeners_;
};

// Starts to connect a host. Returns its error, or an empty text.
inline std::future<std::string> StartToConnect(
    TcpListeners& listeners, int host, const std::string& secret = kTestSecret,
    std::chrono::milliseconds limit = std::chrono::minutes(1)) {
  const TcpRun run{host, listeners.addresses, secret, "", limit};
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

// Connects all hosts, which have the options of `run`. Returns their groups, by host. Destroying a
// group makes its host vanish for the others.
inline std::vector<std::unique_ptr<HostGroup>> ConnectLoopback(int hosts, TcpRun run) {
  TcpListeners listeners(hosts);
  run.addresses = listeners.addresses;
  run.secret = kTestSecret;
  std::vector<std::unique_ptr<HostGroup>> groups(hosts);
  std::vector<std::thread> threads;
  for (int host = 0; host < hosts; ++host) {
    threads.emplace_back([&, host, own = run]() mutable {
      own.host = host;
      groups[host] = listeners.Connect(own).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

inline std::vector<std::unique_ptr<HostGroup>> MakeTcpLoopback(int hosts) {
  return ConnectLoopback(hosts, {});
}

// The frames are authenticated, as between machines.
inline std::vector<std::unique_ptr<HostGroup>> MakeAuthenticatedLoopback(int hosts) {
  TcpRun run;
  run.authenticate_frames = true;
  return ConnectLoopback(hosts, run);
}

}  // namespace penstock
