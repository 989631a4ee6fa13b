// How often a stage's actions communicate, and how much.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// The calls of a collective over a group in one graph.
struct CollectiveCount {
  std::string op;          // "all_gather", as in the graph's text
  std::int64_t group = 0;  // number
  std::int64_t calls = 0;
  // The bytes of whole tensors: the larger one of what each call sends and what it returns.
  std::int64_t bytes = 0;

  friend bool operator==(const CollectiveCount&, const CollectiveCount&) = default;
};

// The collectives of a microbatch on one stage. B has the calls of I and of W.
struct CollectivesOfStage {
  std::vector<CollectiveCount> forward;          // F
  std::vector<CollectiveCount> backward_input;   // I
  std::vector<CollectiveCount> backward_weight;  // W

  friend bool operator==(const CollectivesOfStage&, const CollectivesOfStage&) = default;
};

}  // namespace penstock
