// What the searching algorithms have to schedule, and the queue of events that they run by.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "schedule/catalog.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of the same times in another order differ by rounding; this part of the whole is nothing.
inline constexpr double kRounding = 1e-10;

// F, I and W of every row and stage, within a memory limit. Placement and costs outlive it.
struct Problem {
  const Placement& placement;
  const Costs& costs;
  int rows = 1;  // of one chain: microbatches times slices
  int slices = 1;
  bool split = true;  // backward as I and W, else as B
  // Of each rank, in the unit of costs' activations. At least what one microbatch takes.
  double memory_limit = kNever;
};

// The costs that the parameters give for a placement.
inline Costs CostsOf(const ScheduleParams& params, const Placement& placement) {
  if (params.costs) return *params.costs;
  return Costs::Uniform(placement, params.slices, params.forward, params.backward_input,
                        params.backward_weight, params.comm);
}

// Memory that one microbatch takes on the rank where it takes most: the least limit there can be.
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

// The same times, with memory counted in microbatches: every chunk (and slice) holds its equal
// share.
inline Costs CountingMicrobatches(Costs costs, const Placement& placement, int slices = 1) {
  for (StageCosts& stage : costs.stages) {
    stage.activation = stage.activation_after_i = 1.0 / placement.chunks() / slices;
  }
  return costs;
}

// When each rank looks at its lane next. A rank has one such time; an earlier one replaces it.
class EventQueue {
 public:
  void Reset(int ranks) {
    times_.assign(ranks, kNever);
    heap_.clear();
  }

  double time_of(int rank) const { return times_[rank]; }

  // kNever takes the rank's event away.
  void Set(int rank, double time) {
    times_[rank] = time;
    if (time == kNever) return;
    heap_.push_back({time, rank});
    std::push_heap(heap_.begin(), heap_.end());
  }

  // The rank with the earliest event, lowest rank first; -1 where there is none.
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
