// What each row holds in memory on its stage, by the rules of F, OFFLOAD, RELOAD and RECOMPUTE.
#pragma once

#include <cstdint>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

class Holdings {
 public:
  // `costs` must outlive it.
  Holdings(const Schedule& schedule, const Costs& costs) : costs_(&costs), rows_(schedule.rows()) {
    for (const Lane& lane : schedule.lanes) {
      for (const Action& action : lane) {
        if (action.first.op != Op::kRecompute || !InTable(schedule, action.first)) continue;
        if (recomputed_.empty()) {
          recomputed_.resize(Index(schedule.stages()) * rows_);
        }
        recomputed_[Key(action.first)] = 1;
      }
    }
  }

  // What F takes at its start, and OFFLOAD and RELOAD move: all, or the input alone where the row
  // is recomputed.
  double Kept(const Part& part) const {
    const StageCosts& stage = costs_->Of(part);
    const bool recomputed = !recomputed_.empty() && recomputed_[Key(part)] != 0;
    return recomputed ? stage.input_activation : stage.activation;
  }
  // What RECOMPUTE takes at its start.
  double Remade(const Part& part) const {
    const StageCosts& stage = costs_->Of(part);
    return stage.activation - stage.input_activation;
  }
  // What I, W or B gives back at its end.
  double Freed(const Part& part) const { return costs_->Of(part).Freed(part.op); }

 private:
  std::size_t Key(const Part& part) const { return part.stage * rows_ + Index(part.microbatch); }
  bool InTable(const Schedule& schedule, const Part& part) const {
    return part.stage < schedule.stages() && Index(part.microbatch) < rows_;
  }

  const Costs* costs_;
  std::size_t rows_;
  std::vector<std::uint8_t> recomputed_;  // by (stage, row); empty where no row is
};

}  // namespace penstock
