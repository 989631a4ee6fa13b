#include "graph/count_collectives.h"

#include <map>
#include <utility>

#include "graph/analysis/node_costs.h"
#include "graph/ops/collective.h"
#include "graph/passes/split_collectives.h"

namespace penstock {

std::vector<CollectiveCount> CountCollectives(const Graph& graph) {
  const Graph whole = WithWholeCollectives(graph);
  std::map<std::pair<std::string, std::int64_t>, CollectiveCount> counts;
  for (const Node& node : whole.nodes) {
    if (!IsCollective(node)) continue;
    const std::string& name = node.op.operator_name().name;
    const std::string op = name.substr(name.find("::") + 2);
    CollectiveCount& count = counts[{op, GroupOf(node)}];
    count.op = op;
    count.group = GroupOf(node);
    ++count.calls;
    count.bytes += CollectiveBytes(whole, node);
  }
  std::vector<CollectiveCount> list;
  for (auto& [key, count] : counts) list.push_back(std::move(count));
  return list;
}

CollectivesOfStage CountCollectives(const StageProgram& program) {
  return {CountCollectives(program.forward.graph), CountCollectives(program.backward_input.graph),
          CountCollectives(program.backward_weight.graph)};
}

}  // namespace penstock
