// Hosts within this process that are connected by TCP.
#pragma once

#include <memory>
#include <vector>

#include "runtime/hosts/host_group.h"

namespace penstock {

// Returns the groups of all hosts, by host. Destroying a group makes its host vanish for the
// others.
std::vector<std::unique_ptr<HostGroup>> MakeTcpLoopback(int hosts);

}  // namespace penstock
