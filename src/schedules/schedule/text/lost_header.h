// Schedules whose header may have been lost: many programs strip the hidden headers of earlier
// versions, and the rest is a readable file.
#pragma once

#include "schedule/schedule.h"

namespace penstock {

// Returns the slices per microbatch that a schedule of plain microbatches seems to have: on every
// stage, the backwards of each n consecutive indices run in reverse order, as those of slices must.
// Returns 1 if there is no such n. A schedule in which all backwards run in reverse order, as in
// GPipe's paper, has none.
int SeemingSlices(const Schedule& schedule);

}  // namespace penstock
