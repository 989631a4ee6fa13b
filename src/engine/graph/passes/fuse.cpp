// Fuses chains of pointwise ops and row sums into kernels, which the C++ compiler compiles for this
// machine.
//
//   before:  %5 = pow(%1, 2), %6 = sum(%5, [-1]), ..., %9 = mul(%1, %8), %10 = mul(%9, %2)
//   after:   %8, %10 = penstock::fused([%1, %2], kernel="...")
//
// On a CUDA device, NVRTC compiles them, and kernels add nothing to gradients; other devices have
// none. Values that no other node reads are never stored. With `exact`, kernels contain only ops
// with bitwise equal results: no sums and no transcendental functions. If kernels cannot be
// compiled (there may be no compiler), the graphs do not change, and a line on standard error says
// why. Order: after all passes that change the graphs, so that they need not handle kernels.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <queue>
#include <utility>

#include "graph/capture/shapes_only.h"
#include "graph/fuse/group.h"
#include "graph/ir/graph_tools.h"
#include "graph/kernel/fused_op.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

class Fuser {
 public:
  // `gathers`: whether kernels may add to accumulators.
  Fuser(const Graph& graph, bool exact, bool gathers)
      : graph_(graph), exact_(exact), group_of_(graph.nodes.size(), -1) {
    FindEdges();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      auto group = FuseGroupOf(graph, static_cast<int>(i), exact);
      if (!group || (group->members.front().accumulates && !gathers)) continue;
      groups_.push_back(*std::move(group));
      Claim(static_cast<int>(groups_.size()) - 1);
    }
  }

  // Returns the graph with groups replaced by kernels.
  Graph Run() {
    JoinAlongReads();
    JoinCommonReaders();
    Graph fused = EmptyLike(graph_, graph_.name);
    fused.inputs = graph_.inputs;
    fused.outputs = graph_.outputs;
    WriteNodes(fused);
    PruneBound(fused);
    return fused;
  }

 private:
  std::size_t NodeCount() const { return graph_.nodes.size(); }

  // Finds the order constraints: readers follow producers, and mutations of one gradient and random
  // nodes keep their order.
  void FindEdges() {
    std::vector<int> producer(graph_.values.size(), -1);
    std::vector<int> last_mutation(graph_.values.size(), -1);
    int random = -1;
    after_.resize(NodeCount());
    readers_.resize(graph_.values.size());
    for (std::size_t i = 0; i < NodeCount(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto number = static_cast<int>(i);
      const auto follow = [&](int before) {
        if (before >= 0) after_[before].push_back(number);
      };
      ForEachInput(node, [&](ValueId id) {
        const std::size_t root = graph_.Root(id);
        follow(producer[root]);
        if (readers_[root].empty() || readers_[root].back() != number) {
          readers_[root].push_back(number);
        }
      });
      if (const int mutated = MutatedArgument(node.op.schema()); mutated >= 0) {
        const ValueId id = std::get<ValueId>(node.arguments[mutated]);
        int& last = last_mutation[graph_.Root(id)];
        follow(last);
        last = number;
      }
      if (IsRandom(node)) {
        follow(random);
        random = number;
      }
      for (const ValueId output : node.outputs) {
        if (output != kNoValue) producer[output] = number;
      }
    }
    producer_ = std::move(producer);
  }

  int GroupOfNode(int node) const { return group_of_[node]; }
  FuseGroup& group(int number) { return groups_[number]; }

  // Calls visit(int) with all nodes that the group replaces.
  template <class Visit>
  void ForEachNode(int number, Visit&& visit) {
    for (const FuseMember& member : group(number).members) {
      visit(member.node);
      if (member.also >= 0) visit(member.also);
    }
  }
  // Assigns the group's nodes to it, and clears the groups that they belonged to.
  void Claim(int number) {
    ForEachNode(number, [&](int node) {
      int& now = group_of_[node];
      if (now >= 0 && now != number) group(now).members.clear();
      now = number;
    });
  }

  // Joins each node with the groups that it reads.
  void JoinAlongReads() {
    for (std::size_t i = 0; i < NodeCount(); ++i) {
      if (group_of_[i] < 0) continue;
      for (const ValueId root : ReadBy(static_cast<int>(i))) {
        const int producer = producer_[root];
        if (producer >= 0) TryJoin(GroupOfNode(producer), group_of_[i]);
      }
    }
  }

  // Returns the roots that the node reads as a member of its group.
  std::vector<ValueId> ReadBy(int node) {
    std::vector<ValueId> roots;
    for (const FuseMember& member : group(GroupOfNode(node)).members) {
      if (member.node != node) continue;
      for (std::size_t i = 1; i < member.accesses.size(); ++i) {
        if (member.accesses[i].root != kNoValue) roots.push_back(member.accesses[i].root);
      }
    }
    return roots;
  }

  // Copies are not joined with other readers of a value: they share no arithmetic and little memory
  // with them, and the kernels of sequence slices would all differ.
  bool IsCopy(int number) {
    const std::vector<FuseMember>& members = group(number).members;
    return members.size() == 1 && members.front().op == "copy" && members.front().also < 0;
  }

  // Joins groups that read the same value.
  void JoinCommonReaders() {
    for (std::size_t value = 0; value < readers_.size(); ++value) {
      if (graph_.values[value].type.sizes.empty()) continue;  // scalars
      int last = -1;
      for (const int node : readers_[value]) {
        if (GroupOfNode(node) < 0 || IsCopy(GroupOfNode(node))) continue;
        if (last >= 0) TryJoin(GroupOfNode(last), GroupOfNode(node));
        last = node;
      }
    }
  }

  void TryJoin(int a, int b) {
    if (a < 0 || a == b) return;
    auto joined = Join(group(a), group(b));
    if (!joined || !CanRun(a, b)) return;
    group(a) = *std::move(joined);
    Claim(a);
  }

  // Returns whether no other node has to run between the nodes of the two groups.
  bool CanRun(int a, int b) {
    std::vector<bool> seen(NodeCount());
    std::vector<int> open;
    const auto inside = [&](int node) {
      const int number = GroupOfNode(node);
      return number >= 0 && (number == a || number == b);
    };
    const auto visit = [&](int node) {
      if (seen[node]) return;
      seen[node] = true;
      open.push_back(node);
    };
    for (const int number : {a, b}) {
      ForEachNode(number, [&](int node) {
        for (const int next : after_[node]) {
          if (!inside(next)) visit(next);
        }
      });
    }
    while (!open.empty()) {
      const int node = open.back();
      open.pop_back();
      // The nodes of a group run together.
      if (const int number = GroupOfNode(node); number >= 0) {
        ForEachNode(number, visit);
      }
      for (const int next : after_[node]) {
        if (inside(next)) return false;
        visit(next);
      }
    }
    return true;
  }

  // A group of one node is not replaced.
  bool IsKernel(int number) const {
    if (number < 0) return false;
    const std::vector<FuseMember>& members = groups_[number].members;
    return members.size() > 1 || members.front().also >= 0;
  }

  // Returns the node that represents the node's kernel: its last one. A node outside of kernels
  // represents itself.
  int UnitOf(int node) const {
    const int number = GroupOfNode(node);
    return IsKernel(number) ? groups_[number].members.back().node : node;
  }

  // Returns the units in a valid order: always the ready unit with the smallest index.
  std::vector<int> Order() const {
    std::vector<int> waits(NodeCount());
    std::vector<std::vector<int>> next(NodeCount());
    std::vector<int> order;
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    std::size_t units = 0;
    for (std::size_t i = 0; i < NodeCount(); ++i) {
      const int unit = UnitOf(static_cast<int>(i));
      units += unit == static_cast<int>(i) ? 1 : 0;
      for (const int after : after_[i]) {
        const int other = UnitOf(after);
        if (other == unit) continue;
        next[unit].push_back(other);
        ++waits[other];
      }
    }
    for (std::size_t i = 0; i < NodeCount(); ++i) {
      const auto node = static_cast<int>(i);
      if (UnitOf(node) == node && waits[i] == 0) ready.push(node);
    }
    while (!ready.empty()) {
      order.push_back(ready.top());
      ready.pop();
      for (const int other : next[order.back()]) {
        if (--waits[other] == 0) ready.push(other);
      }
    }
    PENSTOCK_CHECK(order.size() == units, "kernels of graph {} wait for each other", graph_.name);
    return order;
  }

  // Returns the members whose values other nodes or the graph's outputs read.
  std::vector<std::size_t> Stored(int number) const {
    const std::vector<FuseMember>& members = groups_[number].members;
    std::vector<std::size_t> stored;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].accumulates) continue;
      const ValueId value = members[i].accesses[0].root;
      const auto& readers = readers_[value];
      const bool read = std::any_of(readers.begin(), readers.end(),
                                    [&](int reader) { return GroupOfNode(reader) != number; });
      const bool leaves = std::any_of(
          graph_.outputs.begin(), graph_.outputs.end(),
          [&](ValueId output) { return output != kNoValue && graph_.Root(output) == value; });
      if (read || leaves) stored.push_back(i);
    }
    return stored;
  }

  void WriteNodes(Graph& fused) {
    for (const int unit : Order()) {
      const Node& node = graph_.nodes[unit];
      const int number = GroupOfNode(unit);
      if (!IsKernel(number)) {
        fused.nodes.push_back(node);
        continue;
      }
      WriteKernel(number, node.phase, fused);
    }
  }

  void WriteKernel(int number, Phase phase, Graph& fused) {
    const std::vector<FuseMember>& members = group(number).members;
    const std::vector<std::size_t> stored = Stored(number);
    const auto accumulates =
        std::find_if(members.begin(), members.end(),
                     [](const FuseMember& member) { return member.accumulates; });
    if (stored.empty() && accumulates == members.end()) return;  // dead
    FusedKernel built = KernelFor(graph_, group(number), stored);
    for (std::size_t i = 0; i < built.inputs.size(); ++i) StartAtFirstRead(i, built, fused);
    Node kernel{FusedOp(), {}, {}, phase};
    if (accumulates != members.end()) {
      kernel.op = FusedAccumulateOp();
      kernel.arguments.emplace_back(accumulates->accesses[0].root);
    }
    kernel.arguments.emplace_back(std::move(built.inputs));
    kernel.arguments.emplace_back(c10::IValue(TextOf(built.kernel)));
    for (const std::size_t i : stored) kernel.outputs.push_back(members[i].accesses[0].root);
    fused.nodes.push_back(std::move(kernel));
  }

  // Replaces the input by a view that starts at the first element that the kernel reads. Kernels
  // that differ only in this position, such as kernels of sequence slices, then have the same text.
  static void StartAtFirstRead(std::size_t input, FusedKernel& built, Graph& fused) {
    const auto reads = [&](const KernelStep& step) {
      return step.kind == StepKind::kLoad && step.tensor == static_cast<int>(input);
    };
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;
    for (const KernelStep& step : built.kernel.steps) {
      if (!reads(step)) continue;
      std::int64_t least = step.access.offset, most = step.access.offset;
      for (std::size_t i = 0; i < step.access.strides.size(); ++i) {
        const std::int64_t reach = step.access.strides[i] * (built.kernel.loops[i] - 1);
        (reach < 0 ? least : most) += reach;
      }
      first = std::min(first, least);
      last = std::max(last, most);
    }
    if (first <= 0 || first > last) return;
    for (KernelStep& step : built.kernel.steps) {
      if (reads(step)) step.access.offset -= first;
    }
    ValueId& root = built.inputs[input];
    TensorValue view{ContiguousType(fused.value(root).type.dtype, {last - first + 1}), root, first};
    root = fused.AddValue(std::move(view));
  }

  const Graph& graph_;
  const bool exact_;
  std::vector<int> group_of_;  // by node; -1: none
  std::vector<FuseGroup> groups_;
  std::vector<std::vector<int>> after_;    // by node
  std::vector<std::vector<int>> readers_;  // by value: nodes
  std::vector<int> producer_;              // by value
};

// Prints once per process, because all stages have the same reason.
void WarnNotFused(const Error& error) {
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true)) fmt::print(stderr, "penstock: ops are not fused: {}\n", error.line());
}

}  // namespace

Status Fuse(StageGraphs& graphs, const CompileOptions& options) {
  if (!options.fuse || ShapesOnly::Current() != nullptr) return {};
  const c10::Device device = graphs.joint.device;
  // Only kernels for CPUs are known to give the bits of ATen's.
  if (!device.is_cpu() && (!device.is_cuda() || options.exact)) return {};
  Graph forward, input, weight;
  // The graphs share value numbers: a number that one of them adds must be unused in all of them.
  std::size_t numbers = 0;
  for (const Graph* graph : {&graphs.forward, &graphs.backward_input, &graphs.backward_weight}) {
    numbers = std::max(numbers, graph->values.size());
  }
  for (const auto& [from, to] :
       {std::pair(&graphs.forward, &forward), std::pair(&graphs.backward_input, &input),
        std::pair(&graphs.backward_weight, &weight)}) {
    from->values.resize(numbers);
    *to = Fuser(*from, options.exact, device.is_cpu()).Run();
    numbers = to->values.size();
  }
  if (const Status loaded = LoadKernelsOf({&forward, &input, &weight}, device); !loaded) {
    WarnNotFused(loaded.error());
    return {};
  }
  graphs.forward = std::move(forward);
  graphs.backward_input = std::move(input);
  graphs.backward_weight = std::move(weight);
  return {};
}

}  // namespace penstock
