// PriceList: what an emulated device's work takes and holds, in real time. Private to the
// emulation.
#pragma once

#include <chrono>
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
  // Nanoseconds that the part, or the overlapped pair, occupies its device.
  std::int64_t Duration(const Action& action) const;
  // Of as many nanoseconds.
  double Units(std::int64_t nanoseconds) const {
    return static_cast<double>(nanoseconds) / static_cast<double>(options_.unit.count());
  }
  // Of a message between two ranks.
  std::int64_t latency() const { return Nanoseconds(costs_.comm); }
  // On one of the rank's links.
  std::int64_t TransferTime(const Part& part) const;

  // In units of cost memory: what F takes, and OFFLOAD and RELOAD move; what RECOMPUTE takes; what
  // I, W or B gives back; a stage's gathered weights.
  double Kept(const Part& part) const;
  double Remade(const Part& part) const;
  double Freed(const Part& part) const;
  double Gathered(int stage) const { return Of(stage).gathered; }
  std::int64_t Bytes(double amount) const;

  // The STEP that takes a row's gradient, counted from 0 within a round.
  int UpdateOf(int row) const { return row / rows_an_update_; }
  int updates() const { return updates_; }
  int rows_an_update() const { return rows_an_update_; }
  // The stages whose gradients a stage's STEP waits for: all of its group. Fewer than 0 where it
  // waits for its own alone.
  int GroupOf(int stage) const;
  int groups() const { return groups_; }
  bool Reduces(int stage) const { return reduces_[stage] != 0; }

 private:
  std::int64_t Nanoseconds(double units) const;
  const StageCosts& Of(int stage) const { return costs_.stages[stage]; }
  bool Recomputed(const Part& part) const;

  const Schedule* schedule_;
  const Costs costs_;
  const EmulationOptions options_;
  std::vector<char> recomputed_;  // by (stage, row); empty where no row is
  std::vector<char> reduces_;     // by stage: whether it has a REDUCE_GRAD
  bool steps_are_cells_ = false;  // else the program's own STEPs cost nothing, as in the simulator
  int rows_an_update_ = 1;
  int updates_ = 1;
  int groups_ = 0;  // 0: no STEP waits for another stage
};

}  // namespace penstock
