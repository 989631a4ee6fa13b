#include "graph/analysis/hold.h"

#include <algorithm>
#include <functional>
#include <map>

#include "graph/analysis/min_cut.h"
#include "graph/ir/flops.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

// A matmul of a core does about 50 FLOPs in the time that a byte takes from memory, and some ten
// thousand in that of a call.
constexpr std::int64_t kFlopsAByte = 10;
constexpr std::int64_t kFlopsACall = 20'000;
// FLOPs that a byte may cost at most: beyond any op's.
constexpr std::int64_t kHighestPrice = std::int64_t{1} << 20;

class Planner {
 public:
  explicit Planner(const HoldProblem& problem) : problem_(problem) {
    for (std::size_t i = 0; i < problem.makers.size(); ++i) {
      for (const ValueId output : problem.makers[i]->outputs) {
        if (output != kNoValue) maker_[output] = i;
      }
    }
    for (const ValueId root : problem.needed) Note(root);
    for (const Node* node : problem.makers) {
      ForEachInput(*node, [&](ValueId id) { Note(problem.graph->Root(id)); });
    }
  }

  // At a price of `price` FLOPs a byte held.
  HoldPlan At(std::int64_t price) const {
    const auto makers = static_cast<int>(problem_.makers.size());
    const int source = makers + static_cast<int>(values_.size());
    const int sink = source + 1;
    MinCut cut(sink + 1);
    for (int i = 0; i < makers; ++i) {
      const Node& node = *problem_.makers[i];
      const bool once =
          IsRandom(node) || IsCollective(node) || MutatedArgument(node.op.schema()) >= 0;
      cut.AddEdge(i, sink, once ? MinCut::kNever : CostOfRunning(*problem_.graph, node));
      ForEachInput(node, [&](ValueId id) {
        const ValueId root = problem_.graph->Root(id);
        if (!problem_.there->contains(root)) cut.AddEdge(i, VertexOf(root), MinCut::kNever);
      });
    }
    for (const auto& [value, vertex] : values_) {
      const auto found = maker_.find(value);
      const int maker = found == maker_.end() ? sink : static_cast<int>(found->second);
      const bool may_hold = problem_.may_hold == nullptr || problem_.may_hold->contains(value);
      cut.AddEdge(VertexOf(value), maker,
                  may_hold ? price * BytesOf(problem_.graph->value(value).type) : MinCut::kNever);
    }
    for (const ValueId root : problem_.needed) {
      if (!problem_.there->contains(root)) cut.AddEdge(source, VertexOf(root), MinCut::kNever);
    }
    return Read(cut.SourceSide(source, sink));
  }

 private:
  void Note(ValueId root) {
    if (!problem_.there->contains(root)) values_.emplace(root, static_cast<int>(values_.size()));
  }
  int VertexOf(ValueId root) const {
    return static_cast<int>(problem_.makers.size()) + values_.at(root);
  }

  HoldPlan Read(const std::vector<bool>& side) const {
    HoldPlan plan;
    for (std::size_t i = 0; i < problem_.makers.size(); ++i) plan.again.push_back(side[i]);
    for (const auto& [value, vertex] : values_) {
      if (!side[VertexOf(value)]) continue;
      const auto found = maker_.find(value);
      if (found != maker_.end() && plan.again[found->second]) continue;
      plan.held.push_back(value);
      plan.bytes += BytesOf(problem_.graph->value(value).type);
    }
    return plan;
  }

  const HoldProblem& problem_;
  std::map<ValueId, std::size_t> maker_;  // by root: its place among the makers
  std::map<ValueId, int> values_;         // by root: its number among the cut's values
};

}  // namespace

std::int64_t CostOfRunning(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  ForEachInput(node, [&](ValueId id) { bytes += BytesOf(graph.value(id).type); });
  for (const ValueId output : node.outputs) {
    if (output != kNoValue) bytes += BytesOf(graph.value(output).type);
  }
  return FlopsOf(graph, node) + kFlopsAByte * bytes + kFlopsACall;
}

HoldPlan PlanHold(const HoldProblem& problem, std::int64_t budget) {
  const Planner planner(problem);
  HoldPlan best = planner.At(kHighestPrice);
  std::int64_t too_low = 0;
  std::int64_t enough = kHighestPrice;
  if (HoldPlan all = planner.At(0); all.bytes <= budget) return all;
  while (best.bytes <= budget && enough - too_low > 1) {
    const std::int64_t middle = too_low + (enough - too_low) / 2;
    HoldPlan plan = planner.At(middle);
    if (plan.bytes <= budget) {
      enough = middle;
      best = std::move(plan);
    } else {
      too_low = middle;
    }
  }
  return best;
}

std::vector<Node> WithMakers(const HoldProblem& problem, const HoldPlan& plan,
                             std::span<const Node> nodes) {
  std::map<ValueId, std::size_t> again;  // by root: a maker that is still to come
  for (std::size_t i = 0; i < plan.again.size(); ++i) {
    if (!plan.again[i]) continue;
    for (const ValueId output : problem.makers[i]->outputs) {
      if (output != kNoValue) again[output] = i;
    }
  }
  std::map<ValueId, std::size_t> own;  // by root: its node, which a maker may need sooner
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId output : nodes[i].outputs) {
      if (output != kNoValue) own[output] = i;
    }
  }
  std::vector<Node> result;
  std::vector<bool> placed(plan.again.size()), own_placed(nodes.size());
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
    const auto found = again.find(root);
    if (found == again.end() || placed[found->second]) return;
    placed[found->second] = true;
    Node maker = *problem.makers[found->second];
    ForEachInput(maker, place);
    maker.phase = Phase::kBackward;
    result.push_back(std::move(maker));
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) place_own(i);
  for (const ValueId root : problem.needed) place(root);  // what leaves as it is
  return result;
}

}  // namespace penstock
