// A schedule that repeats: every microbatch does the same as the previous one, one period later.
//
// The order of starts on each rank determines its lane. The times themselves are discarded.
#pragma once

#include <vector>

#include "base/index.h"
#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

struct PeriodPattern {
  // Start of microbatch 0's F, I (or B) and W, by stage. They are consecutive along the chain.
  std::vector<double> forward, backward, weight;
  double period = 1;

  explicit PeriodPattern(int stages)
      : forward(Index(stages)), backward(Index(stages)), weight(Index(stages)) {}
};

// Returns the lanes in order of starts. F comes before I, and I before W, at equal times.
std::vector<Lane> LanesOf(const Problem& problem, const PeriodPattern& pattern);

// Whether the lanes stay within the problem's memory limit, however many microbatches there are.
bool FitsMemory(const Problem& problem, const PeriodPattern& pattern);

}  // namespace penstock
