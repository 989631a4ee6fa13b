// Which version of its weights each microbatch of a stage reads.
#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace penstock {

// Version v is the weights after v updates, from the first step of the run on.
struct VersionRule {
  int microbatches_per_update = 1;  // microbatch indices of the chain between two updates
  int lag = 0;  // updates by which the version of a microbatch is older than the newest

  // Microbatch indices and versions continue over the steps of a run. Requires microbatch >= 0.
  std::int64_t VersionOf(std::int64_t microbatch) const {
    return microbatch / microbatches_per_update - lag;
  }
};

// With a flush, every microbatch reads the newest version. A stashed stage reads a version that is
// as many updates old as there are stages after it (PipeDream, Narayanan et al. 2019, section 3.3),
// and double-buffered stages read the version of one batch earlier (PipeDream-2BW, Narayanan et al.
// 2021, section 3.1).
VersionRule VersionRuleOf(const Schedule& schedule, int stage);

}  // namespace penstock
