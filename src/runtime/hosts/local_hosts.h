// Several hosts within one process. Each has a thread that delivers its frames. Every frame is
// serialized to bytes, as between processes.
#pragma once

#include <memory>
#include <vector>

#include "runtime/hosts/host_group.h"

namespace penstock {

// Returns the groups of all hosts, by host. Destroying a group makes its host vanish for the
// others. No other thread may use the group at that time.
std::vector<std::unique_ptr<HostGroup>> MakeLocalHosts(int hosts);

}  // namespace penstock
