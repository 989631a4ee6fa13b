#include "graph/analysis/recompute_plan.h"

#include <algorithm>
#include <functional>
#include <map>

#include "graph/analysis/min_cut.h"
#include "graph/ir/flops.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

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
      const bool runs_once =
          IsRandom(node) || IsCollective(node) || MutatedArgument(node.op.schema()) >= 0;
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
