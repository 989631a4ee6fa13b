#include "runtime/emulation/price_list.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "schedule/untrained.h"

namespace penstock {

PriceList::PriceList(const Schedule& schedule, const Costs& costs, const EmulationOptions& options)
    : schedule_(&schedule), costs_(CostsWithoutBackward(schedule, costs)), options_(options) {
  PENSTOCK_CHECK(costs.stages.size() == Index(schedule.stages()), "costs of {} stages",
                 costs.stages.size());
  reduces_.resize(schedule.stages());
  const std::size_t microbatches = schedule.indices();
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      const Part& part = action.first;
      has_step_actions_ = has_step_actions_ || part.op == Op::kStep;
      if (part.op == Op::kReduceGrad) reduces_[part.stage] = 1;
      if (part.op != Op::kRecompute) continue;
      recomputed_.resize(Index(schedule.stages()) * microbatches);
      recomputed_[part.stage * microbatches + Index(part.microbatch)] = 1;
    }
  }
  microbatches_per_update_ = std::max(1, schedule.weights == WeightPolicy::kStashed
                                             ? schedule.slices
                                             : schedule.indices() / std::max(1, schedule.steps));
  updates_ = schedule.indices() / microbatches_per_update_;
  if (!has_step_actions_) return;
  if (costs.steps_wait_for_all) {
    groups_ = 1;
  } else if (schedule.placement.replicas() > 1) {
    groups_ = schedule.placement.chain_length();
  }
}

std::int64_t PriceList::Nanoseconds(double units) const {
  return std::llround(units * static_cast<double>(options_.unit.count()));
}

std::int64_t PriceList::Duration(const Action& action) const {
  if (action.first.op == Op::kStep && !has_step_actions_) return 0;
  return Nanoseconds(costs_.Duration(action));
}

std::int64_t PriceList::TransferTime(const Part& part) const {
  const bool moves = part.op == Op::kOffload || part.op == Op::kReload;
  return Nanoseconds(costs_.TransferTime(part, moves ? Saved(part) : 0));
}

bool PriceList::IsRecomputed(const Part& part) const {
  if (recomputed_.empty()) return false;
  return recomputed_[part.stage * Index(schedule_->indices()) + Index(part.microbatch)] != 0;
}

double PriceList::Saved(const Part& part) const {
  return IsRecomputed(part) ? costs_.Of(part).input_activation : costs_.Of(part).activation;
}

double PriceList::Recomputed(const Part& part) const {
  return costs_.Of(part).activation - costs_.Of(part).input_activation;
}

double PriceList::Freed(const Part& part) const {
  const StageCosts& stage = costs_.Of(part);
  switch (part.op) {
    case Op::kBackward:
      return stage.activation - stage.gradients_of_others;
    case Op::kBackwardInput:
      return stage.activation - stage.activation_after_i - stage.gradients_of_others;
    case Op::kBackwardWeight:
      return stage.activation_after_i;
    default:
      return 0;
  }
}

std::int64_t PriceList::Bytes(double amount) const {
  return std::llround(amount * options_.activation_bytes);
}

int PriceList::GroupOf(int stage) const { return groups_ == 0 ? -1 : stage % groups_; }

}  // namespace penstock
