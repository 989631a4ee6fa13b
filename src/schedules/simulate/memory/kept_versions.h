// The older versions of its weights that a stage keeps, over the actions of its lane.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace penstock {

struct VersionChange {
  static constexpr int kFirst = -1;  // before the first action

  int position = kFirst;  // in the lane: at the end of this action
  int versions = 0;       // how many more or fewer it keeps
};

// As in the middle of a run: a version is kept until the backward of the last microbatch that reads
// it (version_rule.h). Empty with a flush.
std::vector<VersionChange> VersionChanges(const Schedule& schedule, int stage);

}  // namespace penstock
