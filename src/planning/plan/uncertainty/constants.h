// Constants of the cost model that nobody knows exactly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "scenario/scenario.h"

namespace penstock {

struct UncertainConstant {
  std::string_view name;  // a field of the scenario: "link_efficiency"
  // Standard deviation of the value, as a part of it; for what compute hides, of the part that it
  // does not hide.
  double error = 0;
  std::string source;                                // whose error that is
  std::string_view measurement;                      // what determines the value
  std::vector<double SpeedFactors::*> factors = {};  // that vary with it
};

// Returns all constants in a fixed order. An error is taken from `given` ("link_efficiency=0.1"),
// else the standard error of the scenario's machine, else a default. Errors: kInvalidArgument about
// "uncertainty" and about `machine`.
Result<std::vector<UncertainConstant>> UncertainConstants(const Scenario& scenario,
                                                          const std::vector<std::string>& given);

// Returns the factors of one sample, a function of the seed and the sample's number alone: each
// constant has one that is lognormal with mean 1.
SpeedFactors FactorsOf(const std::vector<UncertainConstant>& constants, std::uint64_t seed,
                       std::uint64_t sample);

}  // namespace penstock
