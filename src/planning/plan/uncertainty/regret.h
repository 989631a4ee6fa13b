// What choices among candidates lose when their times are uncertain.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock {

// By sample, then by candidate: positive times of a step.
using SampledTimes = std::vector<std::vector<double>>;

struct CandidateRegret {
  std::size_t wins = 0;  // samples in which it is the fastest; ties are the first candidate's
  double mean_time = 0;  // of its step
  double expected = 0;   // regret: mean of its time over the fastest candidate's, minus 1
  double worst = 0;      // regret of any sample
};

// Requires: at least one sample and one candidate.
std::vector<CandidateRegret> RegretsOf(const SampledTimes& times);

// Returns the expected regret that is left for someone who knows the value of one constant before
// he chooses; `values` has the constant's value in each sample. The result is estimated from
// samples with similar values: the candidate that is best in half of them is scored in the other
// half, so that noise of the samples is not taken for knowledge. At most the regret of the best
// choice without knowledge. Requires: as above.
double RegretLeft(const SampledTimes& times, const std::vector<double>& values);

}  // namespace penstock
