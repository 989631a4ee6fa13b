// A group whose ranks are threads of one process and exchange through memory, as over a slow link.
//
// Every rank has a link of its own. What it sends takes the link for its bytes over the bandwidth,
// one after another; a latency later it has arrived. Waiting for that takes no core, so that the
// delay can stand for a network's.
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

// The ends of a group of `ranks` ranks (at least 1; one rank sends to itself). They may outlive
// each other. A wait throws std::runtime_error after `timeout` without word from a rank.
std::vector<std::unique_ptr<Collective>> MakeLocalGroup(
    int ranks, LinkSpeed speed, std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace penstock
