// Processes that are connected already, by MPI for example, connected once more for tensors of a
// device.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

// Returns a group of the same processes whose messages in memory of the device move by its backend
// of c10d, which the device's plugin makes (NCCL). All else moves as frames of `processes`, which
// must outlive the group. Process 0 listens on a port for the backends to find each other.
// Collective: all processes get the group, or an error: those of OpenDevicePlugin, and kUnavailable
// for those of the backend.
Result<std::unique_ptr<ProcessGroup>> ConnectByDevice(ProcessGroup& processes, c10::Device device);

}  // namespace penstock
