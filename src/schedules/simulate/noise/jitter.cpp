#include "simulate/noise/jitter.h"

#include <cmath>
#include <numbers>

#include "base/mix_bits.h"

namespace penstock {
namespace {

// Returns a number in (0, 1] from the 53 highest bits.
double ToUnit(std::uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

// Returns a standard normal number (Box and Muller, 1958).
double Normal(std::uint64_t seed) {
  const double radius = std::sqrt(-2 * std::log(ToUnit(SeedOf(seed, 0))));
  return radius * std::cos(2 * std::numbers::pi * ToUnit(SeedOf(seed, 1)));
}

}  // namespace

Jitter::Jitter(double variation, std::uint64_t seed, std::uint64_t run)
    : seed_(SeedOf(seed, run)), sigma_(std::sqrt(std::log1p(variation * variation))) {}

double Jitter::Factor(std::size_t rank, std::size_t position) const {
  if (sigma_ == 0) return 1;
  const double normal = Normal(SeedOf(SeedOf(seed_, rank), position));
  return std::exp(sigma_ * (normal - sigma_ / 2));
}

}  // namespace penstock
