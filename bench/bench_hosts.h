// The processes of a benchmark as hosts: those of an MPI job, or forked ones connected by TCP.
#pragma once

#include <unistd.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/mpi/mpi_hosts.h"
#include "tcp/tcp_hosts.h"

namespace penstock {

// Returns this process's group. With "tcp", the process forks into `hosts` processes first.
inline Result<std::unique_ptr<HostGroup>> OpenBenchHosts(std::string_view connected_by, int hosts) {
  if (connected_by == "mpi") {
    PENSTOCK_TRY(MpiJob job, OpenMpiJob(nullptr));
    return std::move(job.group);
  }
  std::vector<TcpListener> listeners;
  TcpRun run;
  run.secret = BytesOf(RandomBytes());
  for (int host = 0; host < hosts; ++host) {
    PENSTOCK_TRY(TcpListener listener, OpenTcpListener("127.0.0.1"));
    run.addresses.push_back(listener.address);
    listeners.push_back(std::move(listener));
  }
  while (run.host + 1 < hosts && fork() == 0) ++run.host;
  return ConnectTcpHosts(std::move(listeners[run.host]), run);
}

}  // namespace penstock
