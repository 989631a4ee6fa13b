// The processes of a run connected by process groups of PyTorch (c10d): gloo, NCCL, XCCL or any
// other backend that sends and receives.
//
// Each directed edge between two processes has a group of its own, in which the sender has one
// thread and the receiver another. So sends and receives are in one order on both sides, and no
// collective of the framework is among them. A frame is announced by a header on the group's
// backend for CPUs. Tensors of a device follow on its backend for that device, where they are
// received as soon as they are announced, and never pass through memory of the host.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

using C10dGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

struct C10dPlace {
  int process = 0;
  // By process; null for this one. Each has the two processes of the edge, in their order.
  std::vector<C10dGroup> to, from;
  // Tensors of this device are sent by the groups' backend for it. A CPU: they are copied to the
  // host, as by other transports.
  c10::Device device = c10::kCPU;
  std::vector<std::string> machines = {};     // names, by process; empty if unknown
  std::shared_ptr<const void> stores = {};    // of the backends: live as long as the group
  std::chrono::duration<double> timeout{20};  // a process that does not respond for longer is lost
  std::chrono::milliseconds patience{5000};   // for the others to leave, at the end
};

// Collective, called once per process. Destroying the group sends all pending frames and waits for
// the other processes to leave, for a while. Connections are c10d's, which knows no secret: use it
// in networks that you trust.
std::unique_ptr<ProcessGroup> MakeC10dProcessGroup(C10dPlace place);

// Finds the groups of a place, by torch.distributed's names for them; this process's own name is
// empty. Errors: kNotFound for an unknown name, and as ProcessTimeout.
Result<C10dPlace> FindC10dPlace(int process, const std::vector<std::string>& to,
                                const std::vector<std::string>& from);

}  // namespace penstock
