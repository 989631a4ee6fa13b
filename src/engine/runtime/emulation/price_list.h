// PriceList: the durations and memory of an emulated device's work, in real time and bytes. Private
// to the emulation.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/emulation/emulation.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"

namespace penstock {

class PriceList {
 public:
  PriceList(const Schedule& schedule, const Costs& costs, const EmulationOptions& options);

  const Schedule& schedule() const { return *schedule_; }
  // Returns how long the part, or the overlapped pair, occupies its device, in nanoseconds.
  std::int64_t Duration(const Action& action) const;
  // Converts nanoseconds to units of cost time.
  double Units(std::int64_t nanoseconds) const {
    return static_cast<double>(nanoseconds) / static_cast<double>(options_.unit.count());
  }
  // The latency of a message between two ranks.
  std::int64_t latency() const { return Nanoseconds(costs_.comm); }
  // The time of a transfer on one of the rank's links.
  std::int64_t TransferTime(const Part& part) const;

  // In units of cost memory: what F allocates and OFFLOAD and RELOAD move, what RECOMPUTE
  // allocates, what I, W or B frees, and the gathered weights of a stage.
  double Saved(const Part& part) const;
  double Recomputed(const Part& part) const;
  double Freed(const Part& part) const;
  double Gathered(int stage) const { return Of(stage).gathered; }
  std::int64_t Bytes(double amount) const;

  // Returns the STEP that consumes the gradient of a microbatch index, counted from 0 within a
  // round.
  int UpdateOf(int microbatch) const { return microbatch / microbatches_per_update_; }
  int updates() const { return updates_; }
  int microbatches_per_update() const { return microbatches_per_update_; }
  // Returns the group of stages whose gradients a stage's STEP waits for, or a negative number if
  // it waits for its own only.
  int GroupOf(int stage) const;
  int groups() const { return groups_; }
  bool Reduces(int stage) const { return reduces_[stage] != 0; }

 private:
  std::int64_t Nanoseconds(double units) const;
  const StageCosts& Of(int stage) const { return costs_.stages[stage]; }
  bool IsRecomputed(const Part& part) const;

  const Schedule* schedule_;
  const Costs costs_;
  const EmulationOptions options_;
  std::vector<char> recomputed_;  // by (stage, microbatch index); empty if none is
  std::vector<char> reduces_;     // by stage: whether it has a REDUCE_GRAD
  // If false, the program's own STEPs cost nothing, as in the simulator.
  bool has_step_actions_ = false;
  int microbatches_per_update_ = 1;
  int updates_ = 1;
  int groups_ = 0;  // 0: no STEP waits for another stage
};

}  // namespace penstock
