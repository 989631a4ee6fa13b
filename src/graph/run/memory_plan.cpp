#include "graph/run/memory_plan.h"

#include <algorithm>

#include "base/index.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

constexpr std::int64_t kAlignment = 64;  // of every block: a cache line, as in libtorch's allocator

struct Life {
  ValueId value;
  std::int64_t bytes;
  int begin;  // the node that produces it
  int end;    // its last reader
  bool leaves;
  // For placement: results of one call with equal sizes may swap blocks, so all of them live as
  // long as the longest.
  int held_to;
  bool in_arena;
};

// Handles the results of one node, from `first` on.
void ShareLives(std::vector<Life>& lives, std::size_t first) {
  for (std::size_t i = first; i < lives.size(); ++i) {
    for (std::size_t j = first; j < lives.size(); ++j) {
      if (lives[i].bytes != lives[j].bytes) continue;
      lives[i].held_to = std::max(lives[i].held_to, lives[j].end);
      lives[i].in_arena = lives[i].in_arena && !lives[j].leaves;
    }
  }
}

std::vector<Life> LivesOf(const Graph& graph) {
  std::vector<int> last(graph.values.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    ForEachInput(graph.nodes[i], [&](ValueId id) { last[graph.Root(id)] = static_cast<int>(i); });
  }
  ValueSet leaving(graph, {});
  for (const ValueId output : graph.outputs) {
    if (output != kNoValue) leaving.insert(graph.Root(output));
  }
  std::vector<Life> lives;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const std::size_t first = lives.size();
    for (const ValueId output : graph.nodes[i].outputs) {
      if (output == kNoValue) continue;
      const int begin = static_cast<int>(i);
      const bool leaves = leaving.contains(output);
      const int end = leaves ? static_cast<int>(graph.nodes.size()) : std::max(begin, last[output]);
      const std::int64_t bytes = StorageBytes(graph.value(output).type);
      lives.push_back({output, bytes, begin, end, leaves, end, !leaves && bytes > 0});
    }
    ShareLives(lives, first);
  }
  return lives;
}

std::int64_t PeakOf(const std::vector<Life>& lives, std::size_t nodes) {
  std::vector<std::int64_t> change(nodes + 2);
  for (const Life& life : lives) {
    change[life.begin] += life.bytes;
    change[Index(life.end) + 1] -= life.bytes;
  }
  std::int64_t now = 0, peak = 0;
  for (const std::int64_t each : change) peak = std::max(peak, now += each);
  return peak;
}

struct Placed {
  std::int64_t offset;
  std::int64_t end;  // past its last byte
  Life life;
};

// Returns the lowest offset at which `life` overlaps none of `placed`, which are sorted by offset.
std::int64_t FindPlace(const std::vector<Placed>& placed, const Life& life, std::int64_t bytes) {
  std::int64_t offset = 0;
  for (const Placed& other : placed) {
    if (other.life.held_to < life.begin || life.held_to < other.life.begin) continue;
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
  std::vector<Life> lives = LivesOf(graph);
  MemoryPlan plan;
  plan.offsets.assign(graph.values.size(), -1);
  plan.peak_bytes = PeakOf(lives, graph.nodes.size());
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<Placed> placed;
  for (const Life& life : lives) {
    if (!life.in_arena) continue;
    const std::int64_t bytes = (life.bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::int64_t offset = FindPlace(placed, life, bytes);
    const auto place =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [](std::int64_t at, const Placed& other) { return at < other.offset; });
    placed.insert(place, {offset, offset + bytes, life});
    plan.offsets[life.value] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
  }
  return plan;
}

}  // namespace penstock
