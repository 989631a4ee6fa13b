// Lower bounds of what a division takes, whatever its schedule and its split of the layers.
#pragma once

#include <vector>

#include "base/result.h"
#include "plan/search/division.h"

namespace penstock {

struct DivisionBounds {
  // Seconds of a step: the work of all ranks and the update, shared equally.
  double time = 0;
  // Bytes of the worst rank: states and one microbatch, shared equally. When the forward of the
  // first microbatch ends on the last stage, every stage holds its activations.
  double bytes = 0;
};

// Errors: kInvalidArgument if the division is not legal.
Result<DivisionBounds> BoundsOf(const Scenario& scenario, const JobDivision& division);

// Seconds of F and B.
struct WorkTimes {
  // Each layer on the first devices, with the embedding in the first and the head in the last.
  std::vector<double> layers = {};
  // The whole model on the devices of each pipeline rank; empty if all ranks are alike.
  std::vector<double> ranks = {};
};
// Errors: as above.
Result<WorkTimes> WorkTimesOf(const Scenario& scenario, const JobDivision& division);

// Seconds of a step by what the ranks do, as a mean over all ranks.
struct TimeParts {
  double compute = 0;
  double recompute = 0, offload = 0;
  double communication = 0;  // of layers, that compute does not hide
};
Result<TimeParts> TimePartsOf(const Scenario& scenario, const JobDivision& division);

}  // namespace penstock
