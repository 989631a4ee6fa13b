// The clocks of the processes that recorded a run. Private to interop/traces.
#pragma once

#include "interop/traces/one_step.h"

namespace penstock {

// Shifts the times of ranks if some action ends before its input is computed, which only happens
// where clocks differ. Messages of both directions between two ranks bound the difference of their
// clocks from below and above; the middle is taken, as NTP does.
void AlignClocks(OneStep& step);

}  // namespace penstock
