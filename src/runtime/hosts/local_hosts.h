// Hosts that are parts of one process, each with a thread that delivers its frames. Every frame is
// copied as bytes, as between processes.
#pragma once

#include <memory>
#include <vector>

#include "runtime/hosts/host_group.h"

namespace penstock {

// The groups of all hosts, by host. To destroy one means that its host is gone; none may be in use
// by another thread then.
std::vector<std::unique_ptr<HostGroup>> MakeLocalHosts(int hosts);

}  // namespace penstock
