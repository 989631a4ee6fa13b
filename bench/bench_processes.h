// The process group of a benchmark: the processes of an MPI job, or forked ones connected by TCP.
#pragma once

#include <unistd.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/mpi/mpi_process_group.h"
#include "tcp/tcp_process_group.h"

namespace penstock {

// Returns this process's group. With "tcp", the process forks into `processes` processes first.
inline Result<std::unique_ptr<ProcessGroup>> OpenBenchProcesses(std::string_view connected_by,
                                                                int processes) {
  if (connected_by == "mpi") {
    PENSTOCK_TRY(MpiJob job, OpenMpiJob(nullptr));
    return std::move(job.group);
  }
  std::vector<TcpListener> listeners;
  TcpRun run;
  run.secret = BytesOf(RandomBytes());
  for (int process = 0; process < processes; ++process) {
    PENSTOCK_TRY(TcpListener listener, OpenTcpListener("127.0.0.1"));
    run.addresses.push_back(listener.address);
    listeners.push_back(std::move(listener));
  }
  while (run.process + 1 < processes && fork() == 0) ++run.process;
  return ConnectTcpProcesses(std::move(listeners[run.process]), run);
}

}  // namespace penstock
