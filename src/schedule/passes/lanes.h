// What several passes share: a schedule with new lanes, what cells it has, and its updates.
// Private to passes/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/index.h"
#include "schedule/schedule.h"

namespace penstock {

// Everything of `schedule` but its lanes.
inline Schedule WithLanes(const Schedule& schedule, std::vector<Lane> lanes) {
  Schedule result;
  result.algorithm = schedule.algorithm;
  result.placement = schedule.placement;
  result.microbatches = schedule.microbatches;
  result.slices = schedule.slices;
  result.steps = schedule.steps;
  result.weights = schedule.weights;
  result.shared = schedule.shared;
  result.lanes = std::move(lanes);
  return result;
}

constexpr std::uint32_t OpBit(Op op) { return std::uint32_t{1} << static_cast<unsigned>(op); }

// Whether any cell's op is one of `ops`, OpBits.
inline bool HasOps(const Schedule& schedule, std::uint32_t ops) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if ((OpBit(action.first.op) & ops) != 0) return true;
    }
  }
  return false;
}

// Tells when a stage's weight gradients of an update (a batch, or with stashed weights a
// microbatch) are complete.
class GradientCounter {
 public:
  explicit GradientCounter(const Schedule& schedule)
      : rows_a_update_(schedule.weights == WeightPolicy::kStashed
                           ? schedule.slices
                           : schedule.rows() / schedule.steps),
        updates_(schedule.rows() / rows_a_update_),
        ended_(updates_ * Index(schedule.stages())),
        complete_(schedule.stages()) {}

  // Notes a part; returns how many updates of its stage it completes, in their order.
  int Note(const Part& part) {
    if (!EndsMicrobatch(part.op)) return 0;
    const std::size_t first = part.stage * updates_;
    ++ended_[first + Index(part.microbatch / rows_a_update_)];
    std::size_t& complete = complete_[part.stage];
    const std::size_t before = complete;
    while (complete < updates_ && ended_[first + complete] == rows_a_update_) ++complete;
    return static_cast<int>(complete - before);
  }

 private:
  int rows_a_update_;
  std::size_t updates_;
  std::vector<std::int32_t> ended_;    // by (stage, update)
  std::vector<std::size_t> complete_;  // by stage
};

}  // namespace penstock
