#include "tests/runtime/hosts/tcp_loopback.h"

#include <thread>

#include "runtime/hosts/tcp_hosts.h"

namespace penstock {

std::vector<std::unique_ptr<HostGroup>> MakeTcpLoopback(int hosts) {
  std::vector<TcpListener> listeners;
  TcpRun run;
  run.run = "loopback";
  for (int host = 0; host < hosts; ++host) {
    listeners.push_back(OpenTcpListener("127.0.0.1").value());
    run.addresses.push_back(listeners.back().address);
  }
  std::vector<std::unique_ptr<HostGroup>> groups(hosts);
  std::vector<std::thread> threads;
  for (int host = 0; host < hosts; ++host) {
    threads.emplace_back([&, host, own = run]() mutable {
      own.host = host;
      groups[host] = ConnectTcpHosts(std::move(listeners[host]), own).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

}  // namespace penstock
