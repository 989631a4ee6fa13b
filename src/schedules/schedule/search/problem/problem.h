// The input of the search algorithms, and their event queue.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of the same times in another order differ by rounding. Relative differences below this are
// ignored.
inline constexpr double kRounding = 1e-10;

// F, I and W of every stage and microbatch index, within a memory limit. Placement and costs must
// outlive it.
struct Problem {
  const Placement& placement;
  const Costs& costs;
  int indices = 1;  // microbatch indices of one chain: microbatches times slices
  int slices = 1;
  bool split = true;  // backward as I and W, else as B
  // Per rank, in the unit of costs' activations. At least the memory of one microbatch.
  double memory_limit = kNever;
  Objective objective = Objective::kMakespan;
  double effort = 1;  // of a search: the fraction of its full amount of work
};

// Returns the costs that the parameters specify for a placement.
inline Costs CostsOf(const ScheduleParams& params, const Placement& placement) {
  if (params.costs) {
    Costs costs = *params.costs;
    costs.SetCommByLevel(costs.LargestMessage());
    return costs;
  }
  return Costs::Uniform(placement, params.slices, params.forward, params.backward_input,
                        params.backward_weight, params.comm, params.kept_for_weight);
}

// Returns the time of a message between two stages; 0 on one rank, or without one of them (-1).
inline double CommBetween(const Problem& problem, int stage, int other) {
  if (stage < 0 || other < 0) return 0;
  return problem.costs.Comm(problem.placement.rank_of(stage), problem.placement.rank_of(other));
}

// Times of the action that makes the stage's input gradient (I, or B without `split`), and of a
// whole microbatch on the stage.
inline double TimeOfGradient(const StageCosts& cost, bool split) {
  return split ? cost.backward_input : cost.Backward();
}
inline double TimeOfMicrobatch(const StageCosts& cost, bool split) {
  return cost.forward + (split ? cost.backward_input + cost.backward_weight : cost.Backward());
}

// Returns the memory of one microbatch on the rank where it takes most: the lowest possible limit.
inline double LeastMemory(const Placement& placement, const Costs& costs, int slices = 1) {
  double least = 0;
  for (int rank = 0; rank < placement.ranks(); ++rank) {
    double held = 0;
    for (const int stage : placement.stages_of(rank)) {
      held += costs.stages[stage].activation * slices;
    }
    least = std::max(least, held / placement.replicas());
  }
  return least;
}

// Returns the same times, with memory counted in microbatches: every chunk (and slice) takes an
// equal share.
inline Costs CountingMicrobatches(Costs costs, const Placement& placement, int slices = 1) {
  for (StageCosts& stage : costs.stages) {
    stage.activation = stage.activation_after_i = 1.0 / placement.chunks() / slices;
  }
  return costs;
}

// The time when each rank decides next. A rank has one such time; an earlier one replaces it.
class EventQueue {
 public:
  void Reset(int ranks) {
    times_.assign(ranks, kNever);
    heap_.clear();
  }

  double time_of(int rank) const { return times_[rank]; }

  // kNever removes the event of the rank.
  void Set(int rank, double time) {
    times_[rank] = time;
    if (time == kNever) return;
    heap_.push_back({time, rank});
    std::push_heap(heap_.begin(), heap_.end());
  }

  // Removes the earliest event and returns its rank, the lowest of equals; -1 if there is none.
  int Pop() {
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const Event event = heap_.back();
      heap_.pop_back();
      if (event.time == time_of(event.rank)) return event.rank;  // else it was replaced
    }
    return -1;
  }

 private:
  struct Event {
    double time;
    int rank;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : rank > other.rank;
    }
  };

  std::vector<double> times_;
  std::vector<Event> heap_;
};

}  // namespace penstock
