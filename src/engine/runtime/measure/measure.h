// Helpers shared by the readers of a trace. Private to runtime/measure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/measure/trace.h"

namespace penstock {

inline constexpr double kSecondsPerNs = 1e-9;

// Returns the first recorded round from `skip` on. A shorter run is measured by its last round.
inline std::int64_t FirstMeasuredRound(const Trace& trace, int skip) {
  return std::max(trace.first_round(), std::min<std::int64_t>(skip, trace.last_round() - 1));
}

}  // namespace penstock
