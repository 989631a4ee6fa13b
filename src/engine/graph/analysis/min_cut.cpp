#include "graph/analysis/min_cut.h"

#include <algorithm>

namespace penstock {

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

}  // namespace penstock
