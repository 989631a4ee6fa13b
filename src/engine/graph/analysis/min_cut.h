// The minimum cut between a source and a sink.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

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

}  // namespace penstock
