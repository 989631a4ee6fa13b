// Weight versions: which version of its weights each microbatch of a stage reads, and how many
// versions a stage keeps for that.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// Version v is the weights after v updates, from the first step of the run on.
struct VersionRule {
  int microbatches_per_update = 1;  // microbatch indices of the chain between two updates
  int lag = 0;    // updates by which the version of a microbatch is older than the newest
  int older = 0;  // versions that are kept in addition to the newest

  // Microbatch indices and versions continue over the steps of a run. Requires microbatch >= 0.
  std::int64_t VersionOf(std::int64_t microbatch) const {
    return microbatch / microbatches_per_update - lag;
  }
};

// With a flush, every microbatch reads the newest version. A stashed stage reads a version that is
// as many updates old as there are stages after it, and double-buffered stages read the version of
// one batch earlier (schedule.h).
// Errors: kInvalidArgument if the runtime cannot do this: a STEP is missing, or a weight gradient
// is computed before the STEP of the previous update and would be added to the same sum.
Result<VersionRule> VersionsOf(const Schedule& schedule, int stage);

}  // namespace penstock
