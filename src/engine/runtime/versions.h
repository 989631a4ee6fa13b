// Weight versions: which version of its weights each microbatch of a stage reads, and how many
// versions a stage keeps for that.
#pragma once

#include "base/result.h"
#include "schedule/schedule.h"
#include "schedule/version_rule.h"

namespace penstock {

struct StageVersions : VersionRule {
  int older = 0;  // versions that are kept in addition to the newest
};

// Errors: kInvalidArgument if the runtime cannot do this: a STEP is missing, or a weight gradient
// is computed before the STEP of the previous update and would be added to the same sum.
Result<StageVersions> VersionsOf(const Schedule& schedule, int stage);

}  // namespace penstock
