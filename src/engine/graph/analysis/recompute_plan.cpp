#include "graph/analysis/recompute_plan.h"

#include <algorithm>
#include <functional>
#include <map>

#include "graph/ir/flops.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

// Dinic's algorithm (1970): breadth-first levels, then blocking flows along them. A graph of a few
// thousand edges takes milliseconds.
class MinCut {
 public:
  // The capacity of an edge that is never cut.
  static constexpr std::int64_t kNever = std::int64_t{1} << 60;

  // The vertices are 0 to `vertices` - 1.
  explicit MinCut(int vertices) : edges_of_(vertices) {}

  // Adds an edge that costs the cut `capacity` if `from` is on the source's side and `to` on the
  // sink's.
  void AddEdge(int from, int to, std::int64_t capacity);
  // Returns, by vertex, whether it is on the source's side of a minimum cut.
  std::vector<bool> SourceSide(int source, int sink);

 private:
  struct Edge {
    int to;
    std::int64_t left;  // residual capacity
  };

  bool FindLevels(int source, int sink);
  std::int64_t Push(int vertex, int sink, std::int64_t most);

  std::vector<Edge> edges_;  // each followed by its reverse
  std::vector<std::vector<std::size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;  // by vertex: the first edge that can still carry flow
};

void MinCut::AddEdge(int from, int to, std::int64_t capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

std::vector<bool> MinCut::SourceSide(int source, int sink) {
  while (FindLevels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (Push(source, sink, kNever) > 0) {
    }
  }
  std::vector<bool> side(edges_of_.size());
  for (std::size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
  return side;
}

bool MinCut::FindLevels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<int> queue = {source};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::size_t edge : edges_of_[queue[i]]) {
      const int to = edges_[edge].to;
      if (edges_[edge].left == 0 || level_[to] >= 0) continue;
      level_[to] = level_[queue[i]] + 1;
      queue.push_back(to);
    }
  }
  return level_[sink] >= 0;
}

std::int64_t MinCut::Push(int vertex, int sink, std::int64_t most) {
  if (vertex == sink) return most;
  const std::vector<std::size_t>& edges = edges_of_[vertex];
  for (std::size_t& i = next_[vertex]; i < edges.size(); ++i) {
    Edge& edge = edges_[edges[i]];
    if (edge.left == 0 || level_[edge.to] != level_[vertex] + 1) continue;
    const std::int64_t pushed = Push(edge.to, sink, std::min(most, edge.left));
    if (pushed == 0) continue;
    edge.left -= pushed;
    edges_[edges[i] ^ 1].left += pushed;
    return pushed;
  }
  return 0;
}

// On one core, a matmul computes about 50 FLOPs in the time of reading one byte from memory, and
// about ten thousand in the time of one call.
constexpr std::int64_t kFlopsPerByte = 10;
constexpr std::int64_t kFlopsPerCall = 20'000;
// FLOPs per byte: higher than the cost of any op.
constexpr std::int64_t kHighestPrice = std::int64_t{1} << 20;

class Planner {
 public:
  explicit Planner(const RecomputeProblem& problem) : problem_(problem) {
    for (std::size_t i = 0; i < problem.producers.size(); ++i) {
      for (const ValueId output : problem.producers[i]->outputs) {
        if (output != kNoValue) producer_[output] = i;
      }
    }
    for (const ValueId root : problem.needed) AddVertex(root);
    for (const Node* node : problem.producers) {
      ForEachInput(*node, [&](ValueId id) { AddVertex(problem.graph->Root(id)); });
    }
  }

  // Returns the best plan at a price of `price` FLOPs per saved byte.
  RecomputePlan At(std::int64_t price) const {
    const auto producers = static_cast<int>(problem_.producers.size());
    const int source = producers + static_cast<int>(values_.size());
    const int sink = source + 1;
    MinCut cut(sink + 1);
    for (int i = 0; i < producers; ++i) {
      const Node& node = *problem_.producers[i];
      const bool communicates =
          IsCollective(node) && !(problem_.gathers_again && IsAllGather(node));
      const bool runs_once =
          IsRandom(node) || communicates || MutatedArgument(node.op.schema()) >= 0;
      cut.AddEdge(i, sink, runs_once ? MinCut::kNever : CostOfRunning(*problem_.graph, node));
      ForEachInput(node, [&](ValueId id) {
        const ValueId root = problem_.graph->Root(id);
        if (!problem_.alive->contains(root)) cut.AddEdge(i, VertexOf(root), MinCut::kNever);
      });
    }
    for (const auto& [value, vertex] : values_) {
      const auto found = producer_.find(value);
      const int producer = found == producer_.end() ? sink : static_cast<int>(found->second);
      const bool may_save = problem_.may_save == nullptr || problem_.may_save->contains(value);
      cut.AddEdge(VertexOf(value), producer,
                  may_save ? price * BytesOf(problem_.graph->value(value).type) : MinCut::kNever);
    }
    for (const ValueId root : problem_.needed) {
      if (!problem_.alive->contains(root)) cut.AddEdge(source, VertexOf(root), MinCut::kNever);
    }
    return PlanOf(cut.SourceSide(source, sink));
  }

 private:
  void AddVertex(ValueId root) {
    if (!problem_.alive->contains(root)) values_.emplace(root, static_cast<int>(values_.size()));
  }
  int VertexOf(ValueId root) const {
    return static_cast<int>(problem_.producers.size()) + values_.at(root);
  }

  RecomputePlan PlanOf(const std::vector<bool>& side) const {
    RecomputePlan plan;
    for (std::size_t i = 0; i < problem_.producers.size(); ++i) plan.recomputed.push_back(side[i]);
    for (const auto& [value, vertex] : values_) {
      if (!side[VertexOf(value)]) continue;
      const auto found = producer_.find(value);
      if (found != producer_.end() && plan.recomputed[found->second]) continue;
      plan.saved.push_back(value);
      plan.bytes += BytesOf(problem_.graph->value(value).type);
    }
    return plan;
  }

  const RecomputeProblem& problem_;
  std::map<ValueId, std::size_t> producer_;  // by root: index of its producer
  std::map<ValueId, int> values_;            // by root: its vertex among the values
};

}  // namespace

std::int64_t CostOfRunning(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  ForEachInput(node, [&](ValueId id) { bytes += BytesOf(graph.value(id).type); });
  for (const ValueId output : node.outputs) {
    if (output != kNoValue) bytes += BytesOf(graph.value(output).type);
  }
  // An op whose FLOPs are not known is estimated by its bytes.
  return FlopsOf(graph, node).value_or(0) + kFlopsPerByte * bytes + kFlopsPerCall;
}

RecomputePlan PlanRecompute(const RecomputeProblem& problem, std::int64_t budget) {
  const Planner planner(problem);
  RecomputePlan best = planner.At(kHighestPrice);
  std::int64_t too_low = 0;
  std::int64_t enough = kHighestPrice;
  if (RecomputePlan all = planner.At(0); all.bytes <= budget) return all;
  while (best.bytes <= budget && enough - too_low > 1) {
    const std::int64_t middle = too_low + (enough - too_low) / 2;
    RecomputePlan plan = planner.At(middle);
    if (plan.bytes <= budget) {
      enough = middle;
      best = std::move(plan);
    } else {
      too_low = middle;
    }
  }
  return best;
}

std::vector<Node> WithProducers(const RecomputeProblem& problem, const RecomputePlan& plan,
                                std::span<const Node> nodes) {
  std::map<ValueId, std::size_t> recomputed;  // by root: index of a producer that runs again
  for (std::size_t i = 0; i < plan.recomputed.size(); ++i) {
    if (!plan.recomputed[i]) continue;
    for (const ValueId output : problem.producers[i]->outputs) {
      if (output != kNoValue) recomputed[output] = i;
    }
  }
  // By root: index of its node, which a recomputed producer may need earlier.
  std::map<ValueId, std::size_t> own;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId output : nodes[i].outputs) {
      if (output != kNoValue) own[output] = i;
    }
  }
  std::vector<Node> result;
  std::vector<bool> placed(plan.recomputed.size()), own_placed(nodes.size());
  std::function<void(ValueId)> place;
  const auto place_own = [&](std::size_t i) {
    if (own_placed[i]) return;
    own_placed[i] = true;
    ForEachInput(nodes[i], place);
    result.push_back(nodes[i]);
  };
  place = [&](ValueId id) {
    const ValueId root = problem.graph->Root(id);
    if (const auto found = own.find(root); found != own.end()) return place_own(found->second);
    const auto found = recomputed.find(root);
    if (found == recomputed.end() || placed[found->second]) return;
    placed[found->second] = true;
    Node producer = *problem.producers[found->second];
    ForEachInput(producer, place);
    producer.phase = Phase::kBackward;
    result.push_back(std::move(producer));
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) place_own(i);
  for (const ValueId root : problem.needed) place(root);  // values that are only passed through
  return result;
}

}  // namespace penstock
