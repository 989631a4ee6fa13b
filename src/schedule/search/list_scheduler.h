// List scheduling by events, on any placement, with any costs, under any memory limit.
//
// Whenever a rank is free it starts, of the actions whose inputs have arrived, the one that its
// rule ranks first; so a schedule is made in one pass with its exact times. On each stage, F and W
// go in the order of rows, I (or B) by microbatch with its slices from the last.
//
// Memory never goes above the limit, and the pass never gets stuck: on each rank an F may start
// only while the oldest microbatch with forwards left on it could still run all of them there once
// the older ones are gone. Then microbatches can always finish one after the other (the banker's
// algorithm), whatever the rule.
//
// Threads: one object, one thread.
#pragma once

#include <limits>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

// The order of preference: the least  offset[stage] + period * floor(n / group)  goes first, n
// being the row's place in its stage's order.
struct Preference {
  std::vector<double> offset;  // one a stage
  double period = 1;
  int group = 1;
};

struct ListRule {
  Preference forward, backward, weight;  // F; I or B; W
  // Rows of a chain between their F and the end of their W or B on the chain's first stage.
  int window = std::numeric_limits<int>::max();
  // Forwards less backwards that have started, one a stage; empty for no bound.
  std::vector<int> most_ahead;
  // A rank rather waits than start an action when a preferred one is known to arrive within this
  // part of the action's duration.
  double patience = 0;
  // Microbatch n enters its chain not before n times this.
  double interval = 0;

  // I first (lowest row, deepest stage), else F (deepest stage, lowest row), else W (lowest row,
  // shallowest stage: which lets the next row in).
  static ListRule BackwardFirst(const Placement& placement, int rows);
};

class ListScheduler {
 public:
  explicit ListScheduler(const Problem& problem);

  // Makes the schedule and returns its makespan; infinity as soon as it cannot be below `give_up`.
  double Run(const ListRule& rule, double give_up = kNever);

  // Of the last Run that did not give up.
  const std::vector<Lane>& lanes() const { return lanes_; }
  std::vector<Lane> TakeLanes() { return std::move(lanes_); }
  double peak_memory() const { return peak_memory_; }

 private:
  enum Kind { kF, kI, kW, kKinds };

  struct Stage {
    int rank = 0;
    int chain_top = 0;  // the last stage of its chain on its rank
    int previous = -1, next = -1;
    double duration[kKinds] = {};
    double activation = 0, freed_by_i = 0, freed_by_w = 0;
    // Of the run.
    int done[kKinds] = {};  // started so far
    double preference[kKinds] = {};
    int most_ahead = 0;
  };

  struct Rank {
    const int* stages = nullptr;
    int stage_count = 0;
    double work = 0;
    // Of the run.
    bool busy = false;
    double held = 0;
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
  int RowOf(int place) const;
  double Arrival(int stage, Kind kind) const;
  bool MayStartForward(int stage) const;
  bool LeavesRoomForOldest(int stage) const;
  void Decide(int rank, double now);
  Choice BestReady(const Rank& rank, double now, double& next_arrival) const;
  bool BetterArrives(const Rank& rank, const Choice& chosen, double now, double& arrival) const;
  void Start(int rank, const Choice& choice, double now);
  void Publish(double* arrivals, int from_rank, int to_stage, double end);

  const Problem problem_;
  const Kind kinds_;  // how many there are: without split, no W
  double slack_ = 0;  // what is taken for no time and no memory, against rounding
  double memory_limit_ = 0;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::vector<double> f_arrivals_, i_arrivals_;  // by stage and row
  const ListRule* rule_ = nullptr;
  EventQueue events_;
  std::vector<Lane> lanes_;
  double makespan_ = 0;
  double peak_memory_ = 0;
};

}  // namespace penstock
