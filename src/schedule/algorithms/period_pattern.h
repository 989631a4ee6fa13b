// A schedule that repeats: every microbatch does the same as the one before, one period later.
//
// The order of starts on each rank gives its lane; the times themselves are dropped.
#pragma once

#include <vector>

#include "schedule/algorithms/problem.h"
#include "schedule/schedule.h"

namespace penstock {

struct PeriodPattern {
  // Start of microbatch 0's F, I (or B) and W, by stage; after one another along the chain.
  std::vector<double> forward, backward, weight;
  double period = 1;

  explicit PeriodPattern(int stages)
      : forward(static_cast<std::size_t>(stages)),
        backward(static_cast<std::size_t>(stages)),
        weight(static_cast<std::size_t>(stages)) {}
};

// The lanes in the order of starts; where two coincide F goes first, then I.
std::vector<Lane> LanesOf(const Problem& problem, const PeriodPattern& pattern);

// Whether the lanes stay within the problem's memory limit, however many microbatches there are.
bool FitsMemory(const Problem& problem, const PeriodPattern& pattern);

// Most memory that lanes hold on any rank when they run in their order.
double PeakMemory(const Problem& problem, const std::vector<Lane>& lanes);

}  // namespace penstock
