// Stragglers: ranks that take clearly longer than they should.
//
// Every step gives a rank the same work, so two comparisons are fair. Both use the median busy time
// over the last kRecentSteps steps:
// - with its peers: the median of the other ranks that hold as many layers, embeddings and heads
// - with its own past: the rank's busy time relative to the median of all other ranks, compared
//   with the median of this ratio over the earlier steps
// A rank is a straggler if one of them exceeds kStragglerFactor.
#pragma once

#include <span>
#include <vector>

#include "monitor/metrics.h"
#include "monitor/run_description.h"

namespace penstock {

inline constexpr int kRecentSteps = 20;
inline constexpr double kStragglerFactor = 1.25;

struct Straggler {
  int rank = 0;
  double factor = 0;       // how many times longer
  bool than_peers = true;  // otherwise: than before
};

// Returns the stragglers by rank. `metrics` are consecutive steps whose lines have the figures of
// the same number of ranks. `work` is by rank; if it is of another size, no rank has peers.
std::vector<Straggler> FindStragglers(std::span<const StepMetric> metrics,
                                      const std::vector<RankWork>& work);

// Returns the median of the values; 0 for no values. An even number has the mean of the middle two.
double MedianValue(std::vector<double> values);

}  // namespace penstock
