#include "graph/run/memory_plan.h"

#include <algorithm>

#include "base/index.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, as in libtorch's allocator

struct Lifetime {
  ValueId value;
  std::int64_t bytes;
  int begin;  // the node that produces it
  int end;    // its last reader
  bool leaves;
  // The end for placement. Results of one call with equal sizes may swap blocks, so each gets the
  // end of the longest one.
  int block_end;
  bool in_arena;
};

// Extends the blocks of the results of one node, which begin at `first`.
void ExtendBlocks(std::vector<Lifetime>& lifetimes, std::size_t first) {
  for (std::size_t i = first; i < lifetimes.size(); ++i) {
    for (std::size_t j = first; j < lifetimes.size(); ++j) {
      if (lifetimes[i].bytes != lifetimes[j].bytes) continue;
      lifetimes[i].block_end = std::max(lifetimes[i].block_end, lifetimes[j].end);
      lifetimes[i].in_arena = lifetimes[i].in_arena && !lifetimes[j].leaves;
    }
  }
}

// Returns the node that allocates the results of node `number`: the start of a collective allocates
// what its wait returns.
int BeginOf(const Node& node, int number, const std::vector<int>& produced) {
  return IsWait(node) ? produced[std::get<ValueId>(node.arguments.front())] : number;
}

std::vector<Lifetime> LifetimesOf(const Graph& graph) {
  std::vector<int> last(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    ForEachInput(graph.nodes[i], [&](ValueId id) { last[graph.Root(id)] = static_cast<int>(i); });
  }
  ValueSet leaving(graph, {});
  for (const ValueId output : graph.outputs) {
    if (output != kNoValue) leaving.insert(graph.Root(output));
  }
  std::vector<Lifetime> lifetimes;
  std::vector<int> produced(graph.values.size(), 0);  // by value: its node
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::size_t first = lifetimes.size();
    const int begin = BeginOf(graph.nodes[i], static_cast<int>(i), produced);
    for (const ValueId output : graph.nodes[i].outputs) {
      if (output == kNoValue) continue;
      const bool leaves = leaving.contains(output);
      const int end = leaves ? static_cast<int>(graph.nodes.size()) : std::max(begin, last[output]);
      const TensorType& type = graph.value(output).type;
      const std::int64_t bytes = StorageBytes(type);
      const bool in_arena = !leaves && bytes > 0 && !type.rows_vary;
      lifetimes.push_back({output, bytes, begin, end, leaves, end, in_arena});
      produced[output] = static_cast<int>(i);
    }
    ExtendBlocks(lifetimes, first);
  }
  return lifetimes;
}

std::int64_t PeakOf(const std::vector<Lifetime>& lifetimes, std::size_t nodes) {
  std::vector<std::int64_t> change(nodes + 2);
  for (const Lifetime& lifetime : lifetimes) {
    change[lifetime.begin] += lifetime.bytes;
    change[Index(lifetime.end) + 1] -= lifetime.bytes;
  }
  std::int64_t now = 0, peak = 0;
  for (const std::int64_t each : change) peak = std::max(peak, now += each);
  return peak;
}

struct Placed {
  std::int64_t offset;
  std::int64_t end;  // past its last byte
  Lifetime lifetime;
};

// Returns the lowest offset at which the value overlaps none of `placed`, which are sorted by
// offset.
std::int64_t LowestOffset(const std::vector<Placed>& placed, const Lifetime& lifetime,
                          std::int64_t bytes) {
  std::int64_t offset = 0;
  for (const Placed& other : placed) {
    if (other.lifetime.block_end < lifetime.begin || lifetime.block_end < other.lifetime.begin)
      continue;
    if (offset + bytes <= other.offset) break;
    offset = std::max(offset, other.end);
  }
  return offset;
}

}  // namespace

std::int64_t StorageBytes(const TensorType& type) {
  return ExtentOf(type) * static_cast<std::int64_t>(c10::elementSize(type.dtype));
}

MemoryPlan PlanMemory(const Graph& graph) {
  std::vector<Lifetime> lifetimes = LifetimesOf(graph);
  MemoryPlan plan;
  plan.offsets.assign(graph.values.size(), -1);
  plan.peak_bytes = PeakOf(lifetimes, graph.nodes.size());
  std::stable_sort(lifetimes.begin(), lifetimes.end(),
                   [](const Lifetime& a, const Lifetime& b) { return a.bytes > b.bytes; });
  std::vector<Placed> placed;
  for (const Lifetime& lifetime : lifetimes) {
    if (!lifetime.in_arena) continue;
    const std::int64_t bytes = (lifetime.bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::int64_t offset = LowestOffset(placed, lifetime, bytes);
    const auto position =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [](std::int64_t at, const Placed& other) { return at < other.offset; });
    placed.insert(position, {offset, offset + bytes, lifetime});
    plan.offsets[lifetime.value] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
  }
  return plan;
}

}  // namespace penstock
