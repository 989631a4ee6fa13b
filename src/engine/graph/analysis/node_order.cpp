#include "graph/analysis/node_order.h"

#include <algorithm>
#include <map>

#include "graph/ops/collective.h"

namespace penstock {
namespace {

void SortUnique(std::vector<int>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace

NodeOrder OrderOf(const Graph& graph, std::span<const int> part) {
  NodeOrder order{std::vector<std::vector<int>>(graph.nodes.size()),
                  std::vector<std::vector<int>>(graph.nodes.size())};
  // By root: the last node that produced or mutated it.
  std::vector<int> writers(graph.values.size(), -1);
  std::map<int, int> last_random;  // by part
  std::map<std::pair<int, std::int64_t>, int> last_in_group;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto number = static_cast<int>(i);
    const auto writer = [&](ValueId id) -> int& { return writers[graph.Root(id)]; };
    ForEachInput(node, [&](ValueId id) {
      if (writer(id) >= 0) order.after[i].push_back(writer(id));
    });
    // No node reads a mutated value (VerifyGraph), so only mutations depend on mutations.
    const int mutated = MutatedArgument(node.op.schema());
    if (mutated >= 0) {
      writer(std::get<ValueId>(node.arguments[mutated])) = number;
    }
    for (const ValueId output : node.outputs) {
      if (output != kNoValue) writer(output) = number;
    }
    if (IsRandom(node)) {
      const auto [last, is_first] = last_random.try_emplace(part[i], number);
      if (!is_first) order.after[i].push_back(std::exchange(last->second, number));
    }
    if (IsCollective(node)) {
      const auto [last, is_first] = last_in_group.try_emplace({part[i], GroupOf(node)}, number);
      if (!is_first) order.after_start[i].push_back(std::exchange(last->second, number));
    }
    SortUnique(order.after[i]);
  }
  return order;
}

}  // namespace penstock
