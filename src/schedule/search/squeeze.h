// Squeezes the idle time out of a schedule: its lanes are run by events, and an action may overtake
// those before it in its lane that are not ready yet.
//
//   in   F0 .  .  I0 F1 W0 I1 W1        F1 overtakes I0, whose input is still to come, if memory
//   out  F0 F1 .  I0 I1 W0 W1           allows it; then I1 overtakes W0
//
// The rest of a lane always stays within the memory limit when it is run in its order, so squeezing
// never gets stuck. It works in either direction of time: run from the end (kFromEnd), actions move
// as late as they can, and what was fill becomes drain. Squeezing to and fro is the
// forward-backward improvement of project scheduling (Li and Willis 1992; Valls et al. 2005): each
// pass uses the slack that the other has opened.
//
// By insertion instead (the serial scheme of project scheduling), each action in the order of its
// lane goes to the earliest gap of its rank that is long enough: the ones before it do not move, so
// a rank may wait for an action that it ranks first, which by events it never does.
//
// Threads: one object, one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/search/problem/problem.h"

namespace penstock {

struct SqueezeOptions {
  enum class Direction { kFromStart, kFromEnd } direction = Direction::kFromStart;
  // When W gives way to any later F or I that is ready: never, in the drain (once the last
  // microbatch has entered its chain), or always. From the start only.
  enum class WeightsLast { kNever, kInDrain, kAlways } weights_last = WeightsLast::kNever;
  // A rank rather waits than overtakes when an earlier action of its lane is known to arrive within
  // this part of the overtaking action's duration.
  double patience = 0;
  // By insertion: without patience and window; W gives way in the drain of each rank, or never.
  bool by_insertion = false;
  int window = 32;  // actions of the lane, from the first that has not run, that are looked at
};

class Squeezer {
 public:
  explicit Squeezer(const Problem& problem);

  // Runs the lanes and returns the makespan; kNever where they wait for each other for ever, and
  // lanes() is then incomplete. Requires: they stay within the problem's memory limit when run in
  // order.
  double Run(const std::vector<Lane>& lanes, const SqueezeOptions& options);

  // Of the last run.
  const std::vector<Lane>& lanes() const { return out_; }
  double peak_memory() const { return peak_memory_; }
  // Of the last run, which was from the start: when the part ended, and when its inputs were there.
  double EndOf(const Part& part) const;
  double ArrivalOf(const Part& part) const { return Arrival(part); }

 private:
  enum Kind { kF, kI, kW, kKinds };

  static constexpr int kMostBits = 63;

  struct Stage {
    int rank = 0;
    std::uint64_t first_bit = 0;  // of its kinds in a rank's sets of kinds; 0 where it has none
    bool is_first = false, is_last = false;        // of its chain
    double latency_before = 0, latency_after = 0;  // to the stage before and after
    double duration[kKinds] = {};
    // Memory taken at the start and given back at the end, in the direction of the run.
    double taken[kKinds] = {}, given[kKinds] = {};
    double last_end[kKinds] = {};  // of those placed so far
    double activation = 0, freed_by_i = 0, freed_by_w = 0;
  };

  struct Rank {
    std::uint64_t all_bits = 0;
    std::size_t head = 0;  // first of the lane that has not run
    std::size_t drain = std::numeric_limits<std::size_t>::max();  // first after the last F
    bool busy = false;
    double held = 0;
    double end = 0;  // in order: of the last action
  };

  struct Choice {
    std::size_t position = 0;
    double arrival = kNever;       // kNever: nothing is ready
    double next_arrival = kNever;  // of an action that comes before it
  };

  // An action with its place in time, and what its rank holds while it runs.
  struct Placed {
    Action action;
    double start = 0, end = 0, held = 0;
  };

  void Reset(const std::vector<Lane>& lanes, const SqueezeOptions& options);
  void RunInOrder();
  void RunByEvents();
  void RunByInsertion();
  void InsertReady(int rank, std::vector<int>& awake);
  void Insert(int rank, const Action& action);
  const Action& At(int rank, std::size_t position) const;
  double Arrival(const Part& part) const;
  Choice Choose(int rank, double now) const;
  bool WeightsGiveWay() const;
  void Start(int rank, const Choice& choice, double now);
  void Wake(int stage, double time);
  static Kind KindOf(Op op);

  const Problem problem_;
  double slack_ = 0;
  double memory_limit_ = 0;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  EventQueue events_;
  std::vector<double> ends_[kKinds];  // by stage and row; kNever until it has run
  const std::vector<Lane>* in_ = nullptr;
  SqueezeOptions options_;
  bool from_end_ = false;
  int entering_ = 0;  // rows that have not entered their chain
  std::vector<std::vector<std::uint8_t>> has_run_;
  std::vector<std::vector<Placed>> placed_;
  std::vector<Lane> out_;
  double makespan_ = 0;
  double peak_memory_ = 0;
};

}  // namespace penstock
