// A group whose ranks are threads of one process. They exchange data through memory, with the
// delays of a slow link.
//
// Every rank has its own link. Sends occupy the link one after another, each for its bytes divided
// by the bandwidth, and arrive one latency later. Waiting for an arrival uses no core, so the link
// emulates a network.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <vector>

#include "graph/ops/collective.h"

namespace penstock {

struct LinkSpeed {
  double latency = 0;  // seconds
  double bytes_per_second = std::numeric_limits<double>::infinity();
};

// Returns the endpoints of a group. A single rank sends to itself. Endpoints may outlive each
// other. A wait throws std::runtime_error if another rank does not start the collective within
// `timeout`. Requires: ranks >= 1.
std::vector<std::unique_ptr<Collective>> MakeLocalGroup(
    int ranks, LinkSpeed speed, std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace penstock
