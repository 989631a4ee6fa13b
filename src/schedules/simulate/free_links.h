// Messages over links of a topology that no two of them share at any time, so that each takes its
// own latency and size. Whether that holds is known only after the run. Private to simulate/.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "schedule/costs.h"

namespace penstock {

class FreeLinks {
 public:
  // Without a topology, every message takes costs.comm. Requires: CheckTopology accepts
  // costs.topology for these ranks. Ownership: refers to `costs`.
  FreeLinks(const Costs& costs, int ranks);

  void Clear();  // forgets all messages
  // Returns when a message arrives that has its links for itself, and notes that it uses them.
  double Send(int from, int to, double time, double bytes);
  // Whether two messages used a link at the same time: what Send returned is wrong then.
  bool WereShared();

 private:
  struct Use {
    double begin = 0, end = 0;
  };
  // The messages of one link. Each sender's messages come in order, and few links have more than
  // two senders.
  struct Link {
    std::array<std::vector<Use>, 2> ordered;
    std::vector<Use> others;
  };
  // What messages between two ranks take.
  struct Path {
    int to = -1;
    double latency = 0, bandwidth = 0;
    std::array<std::size_t, 2> links{};  // of the sender and the receiver, if there is a bandwidth
  };

  const Path& PathOf(int from, int to);
  std::size_t LinkOf(std::size_t level, int rank, bool receives) const;
  static void Add(const Use& use, Link& link);
  static bool IsShared(Link& link);

  const Topology& topology_;
  const double comm_;
  std::vector<std::size_t> first_link_;  // by level
  std::vector<Link> links_;
  std::vector<std::vector<Path>> paths_;  // by sender
};

}  // namespace penstock
