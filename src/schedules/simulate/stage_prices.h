// The prices of stages as the simulator's loop reads them: one cache line per stage. Private to
// simulate/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/index.h"
#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "simulate/engine_state.h"

namespace penstock {

class StagePrices {
 public:
  // `costs` must outlive this object. Leaves the ranks of the entries to the caller.
  StagePrices(const Schedule& schedule, const Costs& costs)
      : costs_(costs),
        overlap_(costs.overlap),
        early_gradients_(costs.early_gradients),
        stages_(Index(schedule.stages())),
        by_slice_(costs.by_slice.size()),
        vary_(!costs.by_slice.empty()) {
    std::vector<StageEntry>& entries = by_slice_.empty() ? stages_ : by_slice_;
    const std::size_t slices = entries.size() / std::max<std::size_t>(1, stages_.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Set({Op::kForward, static_cast<std::uint16_t>(i / slices), static_cast<int>(i % slices)},
          entries[i]);
    }
    for (const StageCosts& stage : costs.stages) {
      vary_ = vary_ || stage.Freed(Op::kBackwardInput) < 0;
    }
  }

  std::size_t size() const { return stages_.size(); }
  StageEntry& operator[](std::size_t stage) { return stages_[stage]; }
  const StageEntry& operator[](std::size_t stage) const { return stages_[stage]; }

  double Duration(const Action& action) const {
    const Part& first = action.first;
    const double own = Of(first).duration[Index(first.op)];
    if (!action.is_pair()) return own;
    const Part& second = action.second;
    const double other = Of(second).duration[Index(second.op)];
    return first.op == Op::kForward ? overlap_.Price(own, other) : overlap_.Price(other, own);
  }

  // Returns when the results of an action that ends at `end` leave the rank. The action takes
  // `factor` times its duration.
  double SentAt(const Action& action, double end, double factor) const {
    if (!early_gradients_ || action.is_pair() || action.first.op != Op::kBackward) return end;
    const double* const times = Of(action.first).duration;
    const double after = times[Index(Op::kBackward)] - times[Index(Op::kBackwardInput)];
    return end - factor * std::max(0.0, after);
  }

  void Allocate(const Part& part, LaneState& state) const {
    if (part.op != Op::kForward) return;
    state.memory += Of(part).activation;
    state.peak_memory = std::max(state.peak_memory, state.memory);
  }

  void Release(const Part& part, LaneState& state) const {
    if (vary_) {
      state.memory -= costs_.Of(part).Freed(part.op);
      state.peak_memory = std::max(state.peak_memory, state.memory);
      return;
    }
    const StageEntry& stage = stages_[part.stage];
    if (part.op == Op::kBackward) state.memory -= stage.activation;
    if (part.op == Op::kBackwardInput) state.memory -= stage.activation - stage.activation_after_i;
    if (part.op == Op::kBackwardWeight) state.memory -= stage.activation_after_i;
  }

 private:
  // Sets the times and memory of the part's stage and slice.
  void Set(Part part, StageEntry& entry) const {
    for (std::size_t op = 0; op < kComputeOps; ++op) {
      part.op = static_cast<Op>(op);
      entry.duration[op] = costs_.Duration(part);
    }
    entry.activation = costs_.Of(part).activation;
    entry.activation_after_i = costs_.Of(part).activation_after_i;
  }
  const StageEntry& Of(const Part& part) const {
    if (by_slice_.empty()) return stages_[part.stage];
    const std::size_t slices = by_slice_.size() / stages_.size();
    return by_slice_[part.stage * slices + Index(part.microbatch) % slices];
  }

  const Costs& costs_;
  const OverlapRule overlap_;
  const bool early_gradients_;
  std::vector<StageEntry> stages_;
  std::vector<StageEntry> by_slice_;  // only times and memory, if slices differ
  bool vary_;                         // slices differ, or some I allocates more than it frees
};

}  // namespace penstock
