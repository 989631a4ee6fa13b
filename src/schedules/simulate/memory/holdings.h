// The memory that each microbatch keeps alive on its stage, by the rules of F, OFFLOAD, RELOAD and
// RECOMPUTE.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

class Holdings {
 public:
  // `costs` must outlive this object.
  Holdings(const Schedule& schedule, const Costs& costs)
      : costs_(&costs), indices_(schedule.indices()) {
    for (const Lane& lane : schedule.lanes) {
      for (const Action& action : lane) {
        if (action.first.op != Op::kRecompute || !InTable(schedule, action.first)) continue;
        if (recomputed_.empty()) {
          recomputed_.resize(Index(schedule.stages()) * indices_);
        }
        recomputed_[Key(action.first)] = 1;
      }
    }
  }

  // The memory that F allocates at its start, and that OFFLOAD and RELOAD move: all activations, or
  // only the input if they are recomputed.
  double Kept(const Part& part) const {
    const StageCosts& stage = costs_->Of(part);
    const bool recomputed = !recomputed_.empty() && recomputed_[Key(part)] != 0;
    return recomputed ? stage.input_activation : stage.activation;
  }
  // The memory that RECOMPUTE allocates at its start.
  double Recomputed(const Part& part) const {
    const StageCosts& stage = costs_->Of(part);
    return stage.activation - stage.input_activation;
  }
  // The memory that I, W or B frees at its end.
  double Freed(const Part& part) const { return costs_->Of(part).Freed(part.op); }

 private:
  std::size_t Key(const Part& part) const { return part.stage * indices_ + Index(part.microbatch); }
  bool InTable(const Schedule& schedule, const Part& part) const {
    return part.stage < schedule.stages() && Index(part.microbatch) < indices_;
  }

  const Costs* costs_;
  std::size_t indices_;
  std::vector<std::uint8_t> recomputed_;  // by (stage, microbatch); empty if none is
};

}  // namespace penstock
