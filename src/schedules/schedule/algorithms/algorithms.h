// The entries of the catalog, one function per file of this folder, and what the files share.
#pragma once

#include <algorithm>

#include "base/index.h"
#include "schedule/catalog.h"
#include "schedule/reserve.h"

namespace penstock {

#define ALGORITHM(function) Algorithm function();
#include "schedule/algorithms/algorithms.def"
#undef ALGORITHM

// interleaved with a group below the number of ranks shares these with interleaved-zb. The group
// must be at least half the ranks.
Status CheckGroup(const ScheduleParams& params);
Schedule GenerateInterleavedZb(const ScheduleParams& params);

// Returns a schedule of these sizes with empty lanes.
inline Schedule EmptySchedule(Placement placement, const ScheduleParams& params) {
  Schedule schedule;
  schedule.placement = std::move(placement);
  schedule.microbatches = params.microbatches;
  schedule.slices = params.slices;
  schedule.steps = params.steps;
  schedule.lanes.resize(params.ranks);
  return schedule;
}

// Returns one lane: `warmup` forwards, then alternately a forward and a backward, then the
// remaining backwards; `count` of each. next_forward() and next_backward() return the actions in
// their own order.
template <class NextForward, class NextBackward>
Lane WarmUpThenAlternate(int count, int warmup, NextForward next_forward,
                         NextBackward next_backward) {
  Lane lane;
  ReserveLong(lane, 2 * Index(count));
  for (int i = 0; i < warmup; ++i) lane.push_back(next_forward());
  for (int i = warmup; i < count; ++i) {
    lane.push_back(next_forward());
    lane.push_back(next_backward());
  }
  for (int i = 0; i < warmup; ++i) lane.push_back(next_backward());
  return lane;
}

// Returns F + I + W of one rank's share of one microbatch if all stages cost the same; nothing
// otherwise.
inline std::optional<double> UniformWork(const ScheduleParams& params) {
  if (params.costs) return std::nullopt;
  return params.forward + params.backward_input + params.backward_weight;
}

// Whether F = I = W on all stages, without latency. Closed forms of split backwards assume it.
inline bool EqualTimes(const ScheduleParams& params) {
  return !params.costs && params.comm == 0 && params.forward == params.backward_input &&
         params.forward == params.backward_weight;
}

// Returns the closed form of a schedule whose peak memory grows to at most `most` microbatches per
// rank, if F = I = W. Other times change its order.
inline ClosedForm PeakAtEqualTimes(const ScheduleParams& params, double most) {
  ClosedForm form;
  if (EqualTimes(params)) form.peak_memory = std::min<double>(params.microbatches, most);
  return form;
}

}  // namespace penstock
