// Processes that are connected by TCP as the process group of a run.
//
// Each process opens a listener, all exchange their addresses in any way (a store, a file), and
// then each connects to the others:
//
//   PENSTOCK_TRY(TcpListener listener, OpenTcpListener());
//   run.addresses = ...;  // listener.address of every process, by process
//   PENSTOCK_TRY(std::unique_ptr<ProcessGroup> group, ConnectTcpProcesses(std::move(listener),
//   run));
#pragma once

#include <memory>

#include "base/result.h"
#include "runtime/processes/process_group.h"
#include "tcp/tcp_listener.h"
#include "tcp/tcp_mesh.h"

namespace penstock {

// Collective, called once per process. A process is lost if its connection breaks, or if it has not
// responded for ProcessTimeout(). Destroying the group sends all pending frames, unless the group
// is aborted and that takes longer than a few seconds. Errors: as ConnectTcpMesh and
// ProcessTimeout.
Result<std::unique_ptr<ProcessGroup>> ConnectTcpProcesses(TcpListener listener, const TcpRun& run);

}  // namespace penstock
