#include "graph/analysis/node_order.h"

#include <algorithm>
#include <map>

#include "graph/ops/collective.h"

namespace penstock {
namespace {

void Sort(std::vector<int>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace

NodeOrder OrderOf(const Graph& graph, std::span<const int> part) {
  NodeOrder order{std::vector<std::vector<int>>(graph.nodes.size()),
                  std::vector<std::vector<int>>(graph.nodes.size())};
  // By root: the node that produced or mutated it last.
  std::vector<int> producer(graph.values.size(), -1);
  std::map<int, int> last_random;  // by part
  std::map<std::pair<int, std::int64_t>, int> last_in_group;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto number = static_cast<int>(i);
    const auto made = [&](ValueId id) -> int& { return producer[graph.Root(id)]; };
    ForEachInput(node, [&](ValueId id) {
      if (made(id) >= 0) order.after[i].push_back(made(id));
    });
    // Nothing reads a mutated value (VerifyGraph), so only mutations wait for mutations.
    const int changed = MutatedArgument(node.op.schema());
    if (changed >= 0) {
      made(std::get<ValueId>(node.arguments[changed])) = number;
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) made(output) = number;
    }
    if (IsRandom(node)) {
      const auto [last, is_first] = last_random.try_emplace(part[i], number);
      if (!is_first) order.after[i].push_back(std::exchange(last->second, number));
    }
    if (IsCollective(node)) {
      const auto [last, is_first] = last_in_group.try_emplace({part[i], GroupOf(node)}, number);
      if (!is_first) order.after_start[i].push_back(std::exchange(last->second, number));
    }
    Sort(order.after[i]);
  }
  return order;
}

}  // namespace penstock
