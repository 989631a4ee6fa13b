// A slow, obvious judge of schedules: what the validator's verdict is compared with. It plays the
// lanes by the rules as they are written down, one action at a time, with sets and maps.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::testing {

class SlowChecker {
 public:
  explicit SlowChecker(const Schedule& schedule)
      : schedule_(schedule),
        rows_an_update_(schedule.weights == WeightPolicy::kStashed
                            ? schedule.slices
                            : schedule.rows() / schedule.steps),
        updates_(schedule.rows() / rows_an_update_) {}

  bool Valid() { return EachHasItsPlace() && EachRunsOnce() && RunsToTheEnd(); }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key KeyOf(const Part& part) { return {part.op, part.stage, part.microbatch}; }
  static std::vector<Part> PartsOf(const Action& action) {
    std::vector<Part> parts = {action.first};
    if (action.is_pair()) parts.push_back(action.second);
    return parts;
  }

  // Known ops, stages of the rank, rows that there are; pairs of a forward and a backward.
  bool EachHasItsPlace() {
    for (std::size_t rank = 0; rank < schedule_.lanes.size(); ++rank) {
      for (const Action& action : schedule_.lanes[rank]) {
        for (const Part& part : PartsOf(action)) {
          if (part.op >= Op::kNone || part.stage >= schedule_.stages()) return false;
          if (schedule_.placement.rank_of(part.stage) != static_cast<int>(rank)) return false;
          if (HasMicrobatch(part.op) != (part.microbatch >= 0)) return false;
          if (part.microbatch >= schedule_.rows()) return false;
          if (action.is_pair() && !IsCompute(part.op)) return false;
          ++count_[KeyOf(part)];
          used_.insert(part.op);
          communicates_ = communicates_ || IsCommunication(part.op);
        }
        const bool forwards = action.first.op == Op::kForward;
        if (action.is_pair() && forwards == (action.second.op == Op::kForward)) return false;
      }
    }
    return true;
  }

  int Count(Op op, int stage, int row = -1) { return count_[{op, stage, row}]; }
  bool OtherRank(int stage, int neighbour) const {
    return neighbour >= 0 &&
           schedule_.placement.rank_of(stage) != schedule_.placement.rank_of(neighbour);
  }

  // Without a flush the order means nothing but with the STEPs in it.
  bool Steps() const {
    return used_.count(Op::kStep) > 0 || schedule_.weights != WeightPolicy::kFlush;
  }

  bool EachRunsOnce() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (Steps() && Count(Op::kStep, stage) != updates_) return false;
      const int next = communicates_ && OtherRank(stage, schedule_.placement.next(stage));
      const int previous = communicates_ && OtherRank(stage, schedule_.placement.previous(stage));
      for (int row = 0; row < schedule_.rows(); ++row) {
        if (Count(Op::kForward, stage, row) != 1) return false;
        const int whole = Count(Op::kBackward, stage, row);
        const int halves = 1 - whole;
        if (whole > 1 || Count(Op::kBackwardInput, stage, row) != halves) return false;
        if (Count(Op::kBackwardWeight, stage, row) != halves) return false;
        if (Count(Op::kSendForward, stage, row) != next) return false;
        if (Count(Op::kRecvBackward, stage, row) != next) return false;
        if (Count(Op::kSendBackward, stage, row) != previous) return false;
        if (Count(Op::kRecvForward, stage, row) != previous) return false;
      }
    }
    return true;
  }

  bool Done(Op op, int stage, int row) const { return done_.count({op, stage, row}) > 0; }
  bool InputGradientDone(int stage, int row) const {
    return Done(Op::kBackwardInput, stage, row) || Done(Op::kBackward, stage, row);
  }
  // How often UNSHARD, RESHARD, REDUCE_GRAD or STEP of the stage has run.
  int Times(Op op, int stage) const {
    const auto found = times_.find({op, stage});
    return found == times_.end() ? 0 : found->second;
  }
  bool Gathered(int stage) const { return Times(Op::kUnshard, stage) > Times(Op::kReshard, stage); }
  bool Away(int stage, int row) const {
    return Done(Op::kOffload, stage, row) && !Done(Op::kReload, stage, row);
  }

  bool ForwardReady(int stage, int row) const {
    if (row % schedule_.slices != 0 && !Done(Op::kForward, stage, row - 1)) return false;
    const int previous = schedule_.placement.previous(stage);
    if (previous < 0) return true;
    if (communicates_ && OtherRank(stage, previous)) {
      return Done(Op::kSendForward, previous, row) && Done(Op::kRecvForward, stage, row);
    }
    return Done(Op::kForward, previous, row);
  }

  bool BackwardReady(int stage, int row) const {
    if (!Done(Op::kForward, stage, row) || Away(stage, row)) return false;
    if (row % schedule_.slices != schedule_.slices - 1 && !InputGradientDone(stage, row + 1)) {
      return false;
    }
    const int next = schedule_.placement.next(stage);
    if (next < 0) return true;
    if (communicates_ && OtherRank(stage, next)) {
      return Done(Op::kSendBackward, next, row) && Done(Op::kRecvBackward, stage, row);
    }
    return InputGradientDone(next, row);
  }

  // The versions of the weights that the row may read are there. After j STEPs: with a flush W(j);
  // stashed, W(j) and what rows in flight have read; double-buffered, W(j) and W(j-1).
  bool VersionReady(int stage, int row) const {
    if (!Steps()) return true;
    const int steps = Times(Op::kStep, stage);
    const int batch = row / (schedule_.rows() / schedule_.steps);
    const int in_chain = schedule_.placement.model_stage(stage);
    const int ranks_behind = schedule_.placement.chain_length() - 1 - in_chain;
    switch (schedule_.weights) {
      case WeightPolicy::kFlush:
        return steps == batch;
      case WeightPolicy::kStashed:
        return steps >= row / schedule_.slices - ranks_behind;
      case WeightPolicy::kDoubleBuffered: {
        const int version = std::max(0, batch - 1);
        return version == steps || version == steps - 1;
      }
    }
    return false;
  }

  bool GradientsReady(int stage, int update) {
    for (int row = update * rows_an_update_; row < (update + 1) * rows_an_update_; ++row) {
      const bool ended = Done(Op::kBackwardWeight, stage, row) || Done(Op::kBackward, stage, row);
      if (!ended) return false;
    }
    return true;
  }
  bool Reduced(int stage, int update) {
    return Count(Op::kReduceGrad, stage) == 0 || Times(Op::kReduceGrad, stage) > update;
  }

  // The stage's and its replicas' gradients are complete, and reduced where they are reduced.
  bool StepReady(int stage) {
    const int update = Times(Op::kStep, stage);
    if (update >= updates_) return false;
    for (int other = 0; other < schedule_.stages(); ++other) {
      const Placement& placement = schedule_.placement;
      if (placement.model_stage(other) != placement.model_stage(stage)) continue;
      if (!GradientsReady(other, update) || !Reduced(other, update)) return false;
    }
    return true;
  }

  bool ReduceReady(int stage) {
    const int update = Times(Op::kReduceGrad, stage);
    return update < updates_ && GradientsReady(stage, update) && Times(Op::kStep, stage) <= update;
  }

  bool Ready(const Part& part) {
    const int stage = part.stage;
    const int row = part.microbatch;
    const bool reads_weights = IsCompute(part.op) || part.op == Op::kRecompute;
    if (reads_weights && used_.count(Op::kUnshard) > 0 && !Gathered(stage)) return false;
    if (IsCompute(part.op) && !VersionReady(stage, row)) return false;
    const bool between = row >= 0 && Done(Op::kForward, stage, row) &&
                         !InputGradientDone(stage, row);  // F has run, I or B has not
    switch (part.op) {
      case Op::kForward:
        return ForwardReady(stage, row);
      case Op::kBackward:
      case Op::kBackwardInput:
        return BackwardReady(stage, row);
      case Op::kBackwardWeight:
        return Done(Op::kBackwardInput, stage, row);
      case Op::kSendForward:
        return Done(Op::kForward, stage, row);
      case Op::kSendBackward:
        return InputGradientDone(stage, row);
      case Op::kUnshard:
        return !Gathered(stage);
      case Op::kReshard:
        return Gathered(stage);
      case Op::kReduceGrad:
        return ReduceReady(stage);
      case Op::kStep:
        return StepReady(stage);
      case Op::kOffload:
        return between && !Done(Op::kOffload, stage, row) && !Done(Op::kRecompute, stage, row);
      case Op::kReload:
        return between && Away(stage, row);
      case Op::kRecompute:
        return between && !Away(stage, row) && !Done(Op::kRecompute, stage, row);
      default:
        return true;
    }
  }

  void Mark(const Part& part) {
    done_.insert(KeyOf(part));
    ++times_[{part.op, part.stage}];
  }

  bool RunsToTheEnd() {
    std::vector<std::size_t> at(schedule_.lanes.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t rank = 0; rank < at.size(); ++rank) {
        if (at[rank] == schedule_.lanes[rank].size()) continue;
        const std::vector<Part> parts = PartsOf(schedule_.lanes[rank][at[rank]]);
        bool ready = true;
        for (const Part& part : parts) ready = ready && Ready(part);
        if (!ready) continue;
        for (const Part& part : parts) Mark(part);
        ++at[rank];
        progress = true;
      }
    }
    for (std::size_t rank = 0; rank < at.size(); ++rank) {
      if (at[rank] != schedule_.lanes[rank].size()) return false;
    }
    return true;
  }

  const Schedule& schedule_;
  const int rows_an_update_, updates_;
  std::map<Key, int> count_;  // in all lanes
  std::set<Op> used_;
  std::set<Key> done_;
  std::map<std::pair<Op, int>, int> times_;  // by op and stage
  bool communicates_ = false;
};

inline bool SlowlyValid(const Schedule& schedule) { return SlowChecker(schedule).Valid(); }

}  // namespace penstock::testing
