// The noise of measured times: a factor for each action of one run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr double kMostJitter = 10;

// Factors are independent and lognormal with mean 1. Each is a function of the seed, the run, the
// rank and the position in its lane alone, so the order in which actions are simulated does not
// matter.
class Jitter {
 public:
  // `variation` is the coefficient of variation: the standard deviation, because the mean is 1.
  // Requires: 0 <= variation <= kMostJitter. With 0 every factor is 1.
  Jitter(double variation, std::uint64_t seed, std::uint64_t run);

  double Factor(std::size_t rank, std::size_t position) const;

 private:
  std::uint64_t seed_;
  double sigma_;  // of the factor's logarithm
};

}  // namespace penstock
