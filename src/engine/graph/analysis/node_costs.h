// Costs of nodes in seconds: set ones, else estimates.
//
// A cost belongs to a call: an op, the types of its arguments and its constants, in any graph. All
// ranks of a group must use the same costs, because they must compute the same order.
#pragma once

#include <map>
#include <string>

#include "base/link_speed.h"
#include "graph/ir/ir.h"

namespace penstock {

// Returns the larger one of the bytes that a whole collective sends and the bytes that it receives.
std::int64_t CollectiveBytes(const Graph& graph, const Node& node);

class NodeCosts {
 public:
  // The time of a collective that was not set follows from a link: 100 Gbit/s if none is given, and
  // what gloo reaches for collectives of c10d.
  NodeCosts() = default;
  explicit NodeCosts(LinkSpeed link) : link_(link) {}

  // Returns the cost that was set for equal calls, else an estimate from FLOPs and bytes, for one
  // core.
  double Seconds(const Graph& graph, const Node& node) const;
  void Set(const Graph& graph, const Node& node, double seconds);

  std::size_t size() const { return seconds_.size(); }

 private:
  LinkSpeed link_ = {.latency = 20e-6, .bytes_per_second = 12.5e9};
  std::map<std::string, double> seconds_;  // by call
};

}  // namespace penstock
