// Shared by the passes: replacing lanes, finding ops, counting updates. Private to passes/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"
#include "schedule/vocabulary.h"

namespace penstock {

// Returns `schedule` with other lanes.
inline Schedule WithLanes(const Schedule& schedule, std::vector<Lane> lanes) {
  Schedule result;
  result.algorithm = schedule.algorithm;
  result.placement = schedule.placement;
  result.microbatches = schedule.microbatches;
  result.slices = schedule.slices;
  result.steps = schedule.steps;
  result.weights = schedule.weights;
  result.vocabulary = schedule.vocabulary;
  result.shared = schedule.shared;
  result.backward = schedule.backward;
  result.lanes = std::move(lanes);
  return result;
}

constexpr std::uint32_t OpBit(Op op) { return std::uint32_t{1} << static_cast<unsigned>(op); }

// Whether any action has one of `ops`, a set of OpBits.
inline bool HasOps(const Schedule& schedule, std::uint32_t ops) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if ((OpBit(action.first.op) & ops) != 0) return true;
    }
  }
  return false;
}

// Finds when a stage's weight gradients of an update (a batch, or a microbatch with stashed
// weights) are complete.
class GradientCounter {
 public:
  explicit GradientCounter(const Schedule& schedule)
      : indices_per_update_(schedule.weights == WeightPolicy::kStashed
                                ? schedule.slices
                                : schedule.indices() / schedule.steps),
        updates_(schedule.indices() / indices_per_update_),
        ended_(updates_ * Index(schedule.stages())),
        complete_(schedule.stages()),
        shares_(GradientShares(schedule)) {
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      backwards_.push_back(schedule.backward_of(stage));
    }
  }

  // Records a part. Returns how many updates of its stage it completes, in their order.
  int Note(const Part& part) {
    if (!AddsGradients(backwards_[part.stage], part.op)) return 0;
    const std::size_t first = part.stage * updates_;
    ++ended_[first + Index(part.microbatch / indices_per_update_)];
    std::size_t& complete = complete_[part.stage];
    const std::size_t before = complete;
    const int needed = indices_per_update_ * shares_[part.stage];
    while (complete < updates_ && ended_[first + complete] == needed) ++complete;
    return static_cast<int>(complete - before);
  }

 private:
  int indices_per_update_;
  std::size_t updates_;
  std::vector<std::int32_t> ended_;       // by (stage, update)
  std::vector<std::size_t> complete_;     // by stage
  std::vector<int> shares_;               // by stage: actions per index that add to its gradients
  std::vector<StageBackward> backwards_;  // by stage
};

}  // namespace penstock
