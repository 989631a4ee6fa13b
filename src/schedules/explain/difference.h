// How two timelines differ: what moved, and where the time went.
#pragma once

#include <array>
#include <vector>

#include "explain/bubbles.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

// A schedule with the times of its actions, and why its ranks are idle.
struct ExplainedRun {
  const Schedule& schedule;
  const Timeline& timeline;
  const std::vector<std::vector<Bubble>>& bubbles;
};

// Time per rank: the mean over the ranks.
struct TimeUse {
  std::array<double, kOpCount>
      by_op{};  // of actions that occupy a rank; a pair counts as half each
  TimeByCause bubbles{};
};
TimeUse TimeUseOf(const ExplainedRun& run);

// An action of both runs: the same op, stage and microbatch.
struct Moved {
  Part part;
  int rank_a = 0, rank_b = 0;
  double start_a = 0, start_b = 0;
};

struct Difference {
  TimeUse a, b;
  std::vector<Moved> common;  // by how far their start moved, farthest first
  std::size_t reordered = 0;  // of these, the ones that follow another action on their rank
  std::size_t other_rank = 0;
  // Actions that only one run has, by op.
  std::array<std::size_t, kOpCount> only_a{}, only_b{};
};

Difference Compare(const ExplainedRun& a, const ExplainedRun& b);

}  // namespace penstock
