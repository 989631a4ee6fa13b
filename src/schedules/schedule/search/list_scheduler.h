// Event-driven list scheduling on any placement, with any costs, within any memory limit.
//
// Whenever a rank is free, it starts the action that its rule prefers among those whose inputs have
// arrived. So one pass builds the schedule with its exact times. On each stage, F and W go in order
// of microbatch indices, I (or B) by microbatch with its slices from the last.
//
// Memory never exceeds the limit, and the pass never gets stuck. On each rank an F may start only
// if the oldest microbatch with forwards left there could still run all of them once the older ones
// are freed. So microbatches can always finish in sequence, whatever the rule (the banker's
// algorithm).
//
// Threads: one object, one thread.
#pragma once

#include <limits>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// The order of preference: the lowest offset[stage] + period * floor(n / group) goes first, where n
// counts the actions of the kind on the stage.
struct Preference {
  std::vector<double> offset;  // one per stage
  double period = 1;
  int group = 1;
};

struct ListRule {
  Preference forward, backward, weight;  // F; I or B; W
  // The most microbatch indices of a chain between their F and the end of their W or B on its first
  // stage.
  int window = std::numeric_limits<int>::max();
  // The most forwards minus backwards that have started, per stage; empty for no bound.
  std::vector<int> most_ahead;
  // A rank waits rather than start an action if a preferred one is known to arrive within this
  // fraction of its duration.
  double patience = 0;
  // Microbatch n enters its chain no earlier than n times this.
  double interval = 0;

  // Prefers I (lowest microbatch, deepest stage), then F (deepest stage, lowest microbatch), then W
  // (lowest microbatch, shallowest stage, which admits the next microbatch).
  static ListRule BackwardFirst(const Placement& placement, int indices);
};

class ListScheduler {
 public:
  explicit ListScheduler(const Problem& problem);

  // Builds the schedule and returns its makespan. Returns infinity once it cannot be below
  // `give_up`.
  double Run(const ListRule& rule, double give_up = kNever);

  // Results of the last Run that did not give up.
  const std::vector<Lane>& lanes() const { return lanes_; }
  std::vector<Lane> TakeLanes() { return std::move(lanes_); }
  double longest_span() const;
  double peak_memory() const { return peak_memory_; }

 private:
  enum Kind { kF, kI, kW, kKinds };

  struct Stage {
    int rank = 0;
    int chain_top = 0;  // the last stage of its chain on its rank
    int previous = -1, next = -1;
    double duration[kKinds] = {};
    double activation = 0, freed_by_i = 0, freed_by_w = 0;
    // State of the run.
    int done[kKinds] = {};  // started so far
    double preference[kKinds] = {};
    int most_ahead = 0;
  };

  struct Rank {
    const int* stages = nullptr;
    int stage_count = 0;
    double work = 0;
    // State of the run.
    bool busy = false;
    double held = 0;
    double first_start = 0, last_end = 0;
    double remaining = 0;
    std::size_t position = 0;
  };

  struct Choice {
    int stage = -1;
    Kind kind = kF;
    double preference = kNever;
    double arrival = kNever;
  };

  void Reset(const ListRule& rule);
  void Advance(Stage& stage, Kind kind, const Preference& preference);
  int MicrobatchAt(int place) const;
  double Arrival(int stage, Kind kind) const;
  bool MayStartForward(int stage) const;
  bool LeavesRoomForOldest(int stage) const;
  void Decide(int rank, double now);
  Choice BestReady(const Rank& rank, double now, double& next_arrival) const;
  bool BetterArrives(const Rank& rank, const Choice& chosen, double now, double& arrival) const;
  void Start(int rank, const Choice& choice, double now);
  void Publish(double* arrivals, int from_rank, int to_stage, double end);

  const Problem problem_;
  const Kind kinds_;  // number of kinds; no W without split
  double slack_ = 0;  // tolerance for rounding of times and memory
  double memory_limit_ = 0;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::vector<double> f_arrivals_, i_arrivals_;  // by stage and microbatch
  const ListRule* rule_ = nullptr;
  EventQueue events_;
  std::vector<Lane> lanes_;
  double makespan_ = 0;
  double peak_memory_ = 0;
};

}  // namespace penstock
