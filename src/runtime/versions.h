// Which version of its weights each row of a stage reads, and how many a stage keeps for it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// Version v is the weights after v updates, from the first step of the run on.
struct VersionRule {
  int rows_an_update = 1;  // an update follows behind so many rows of the stage's chain
  int lag = 0;             // updates that a row's version is behind its own
  int older = 0;           // versions that are kept beside the newest

  // Rows and versions count on over the steps of a run. Requires row >= 0.
  std::int64_t VersionOf(std::int64_t row) const { return row / rows_an_update - lag; }
};

// With a flush every row reads the newest; a stashed stage reads what is as many updates old as
// there are stages behind it; double-buffered ones read what is one batch old (schedule.h).
// Errors: kInvalidArgument where the runtime cannot hold to it: a STEP is missing, or a weight
// gradient is made before the STEP of the update before, into the same sum.
Result<VersionRule> VersionsOf(const Schedule& schedule, int stage);

}  // namespace penstock
