// Squeezes idle time out of a schedule: runs its lanes by events, and lets a ready action overtake
// earlier actions of its lane that are not ready.
//
//   in   F0 .  .  I0 F1 W0 I1 W1        F1 overtakes I0, whose input has not arrived, if memory
//   out  F0 F1 .  I0 I1 W0 W1           allows it; then I1 overtakes W0
//
// The rest of a lane always stays within the memory limit if it runs in order, so squeezing never
// gets stuck. It works in either direction of time. Run from the end (kFromEnd), actions move as
// late as they can, and the fill becomes the drain. Squeezing alternately from both ends is the
// forward-backward improvement of project scheduling (Li and Willis 1992; Valls et al. 2005): each
// pass uses the slack that the other has opened.
//
// Squeezing by insertion (the serial scheme of project scheduling) instead puts each action, in the
// order of its lane, into the earliest gap of its rank that is long enough. Earlier actions do not
// move, so a rank may wait for an action that comes first, which it never does when run by events.
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
  // When W yields to any later F or I that is ready: never, in the drain (once the last microbatch
  // has entered its chain), or always. Only from the start.
  enum class WeightsLast { kNever, kInDrain, kAlways } weights_last = WeightsLast::kNever;
  // A rank waits rather than let an action overtake if an earlier action is known to arrive within
  // this fraction of its duration.
  double patience = 0;
  // Squeezes by insertion, ignoring patience and window. W yields in the drain of each rank, or
  // never.
  bool by_insertion = false;
  int window = 32;  // actions considered, from the first of the lane that has not run
};

class Squeezer {
 public:
  explicit Squeezer(const Problem& problem);

  // Runs the lanes and returns the makespan. Returns kNever if they deadlock; lanes() is then
  // incomplete.
  // Requires: the lanes stay within the problem's memory limit when run in order.
  double Run(const std::vector<Lane>& lanes, const SqueezeOptions& options);

  // Results of the last run.
  const std::vector<Lane>& lanes() const { return out_; }
  double longest_span() const { return longest_span_; }  // over ranks, first start to last end
  double peak_memory() const { return peak_memory_; }
  // Results of the last run, which was from the start: when the part ended, and when its inputs
  // arrived.
  double EndOf(const Part& part) const;
  double ArrivalOf(const Part& part) const { return Arrival(part); }

 private:
  enum Kind { kF, kI, kW, kKinds };

  static constexpr int kMostBits = 63;

  struct Stage {
    int rank = 0;
    std::uint64_t first_bit = 0;  // of its kinds in the rank's sets of kinds; 0 if it has none
    bool is_first = false, is_last = false;        // of its chain
    double latency_before = 0, latency_after = 0;  // to the previous and next stage
    double duration[kKinds] = {};
    // Memory allocated at the start and freed at the end, in the direction of the run.
    double taken[kKinds] = {}, given[kKinds] = {};
    double last_end[kKinds] = {};  // of those placed so far
    double activation = 0, freed_by_i = 0, freed_by_w = 0;
  };

  struct Rank {
    std::uint64_t all_bits = 0;
    std::size_t head = 0;  // the first action of the lane that has not run
    std::size_t drain =
        std::numeric_limits<std::size_t>::max();  // the first action after the last F
    bool busy = false;
    double held = 0;
    double end = 0;  // in order: of the last action
  };

  struct Choice {
    std::size_t position = 0;
    double arrival = kNever;       // kNever: nothing is ready
    double next_arrival = kNever;  // of an earlier action of the lane
  };

  // An action with its time, and the memory of its rank while it runs.
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
  double SpanOf(const Lane& lane) const;
  void Wake(int stage, double time);
  static Kind KindOf(Op op);

  const Problem problem_;
  double slack_ = 0;
  double memory_limit_ = 0;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  EventQueue events_;
  std::vector<double> ends_[kKinds];  // by stage and microbatch; kNever until it has run
  const std::vector<Lane>* in_ = nullptr;
  SqueezeOptions options_;
  bool from_end_ = false;
  int entering_ = 0;  // microbatch indices that have not entered their chain
  std::vector<std::vector<std::uint8_t>> has_run_;
  std::vector<std::vector<Placed>> placed_;
  std::vector<Lane> out_;
  double makespan_ = 0;
  double longest_span_ = 0;
  double peak_memory_ = 0;
};

}  // namespace penstock
