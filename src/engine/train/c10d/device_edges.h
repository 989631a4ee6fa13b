// Processes that are connected already, by MPI for example, connected once more for tensors of a
// device.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

// Returns a group of the same processes whose messages in memory of the device move by `transport`:
// "c10d", a backend that the device's plugin makes (NCCL), or "mpi", the direct transfers of
// `processes`. All else moves as frames of `processes`, which must outlive the group, also that by
// which the backends find each other.
// Collective: all processes get the group, or an error: kInvalidArgument for a CPU, as
// OpenDevicePlugin and FindDirectTransfers, and kUnavailable if the backend fails.
Result<std::unique_ptr<ProcessGroup>> ConnectByDevice(ProcessGroup& processes, c10::Device device,
                                                      const std::string& transport);

}  // namespace penstock
