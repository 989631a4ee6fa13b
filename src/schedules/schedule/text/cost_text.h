// Costs as users write them, read in one way on the command line and in configurations.
//
// Errors: kInvalidArgument with the text quoted; the caller adds the option or key.
#pragma once

#include <array>
#include <string_view>

#include "base/result.h"
#include "schedule/catalog.h"
#include "schedule/costs.h"

namespace penstock {

// Times of one rank's share of one microbatch.
struct UniformCost {
  double forward = 1, backward_input = 1, backward_weight = 1;
  double kept_for_weight = 1;  // the part of the activations that I keeps for W
};

// Reads "F", which gives all times, "F,I,W" or "F,I,W,KEPT".
Result<UniformCost> ParseCost(std::string_view text);

inline constexpr std::array<std::string_view, 2> kObjectiveNames = {"makespan", "span"};
// Reads one of these.
Result<Objective> ParseObjective(std::string_view text);

inline constexpr std::array<std::string_view, 2> kOverlapNames = {"max", "sum"};
// Reads one of these or a factor of F + B.
Result<OverlapRule> ParseOverlap(std::string_view text);

}  // namespace penstock
