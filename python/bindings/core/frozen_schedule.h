// A schedule that never changes, so that threads may read it without the GIL. The Python class
// Schedule builds another one once its lanes have been edited.
#pragma once

#include <memory>

#include "schedule/schedule.h"

namespace penstock::python {

struct FrozenSchedule {
  std::shared_ptr<const Schedule> schedule;
  // Whether the validator, or the algorithm that generated it, has proven it. Guarded by the GIL.
  mutable bool valid = false;
  // Whether a STEP waits for the gradients of every stage, as the pass `optimizer` asks for.
  bool steps_wait_for_all = false;

  const Schedule& operator*() const { return *schedule; }
  const Schedule* operator->() const { return schedule.get(); }
};

// Validates the schedule unless it is known to be valid, without the GIL. Raises penstock.Error.
// Threads: the caller holds the GIL.
void RequireValid(const FrozenSchedule& schedule);

}  // namespace penstock::python
