// A slow, obvious judge of schedules: what the validator's verdict is compared with.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "schedule/schedule.h"

namespace penstock::testing {

// Whether a schedule of F, I, W, B, pairs, SEND and RECV is valid; no cuts, no several batches.
class SlowChecker {
 public:
  explicit SlowChecker(const Schedule& schedule) : schedule_(schedule) {}

  bool Valid() {
    for (std::size_t rank = 0; rank < schedule_.lanes.size(); ++rank) {
      for (const Action& action : schedule_.lanes[rank]) {
        for (const Part& part : PartsOf(action)) {
          if (part.stage >= schedule_.stages()) return false;
          if (part.microbatch < 0 || part.microbatch >= schedule_.rows()) return false;
          if (schedule_.placement.rank_of(part.stage) != static_cast<int>(rank)) return false;
          ++count_[KeyOf(part)];
          communicates_ = communicates_ || IsCommunication(part.op);
        }
      }
    }
    return EachRunsOnce() && RunsToTheEnd();
  }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key KeyOf(const Part& part) { return {part.op, part.stage, part.microbatch}; }
  static std::vector<Part> PartsOf(const Action& action) {
    std::vector<Part> parts = {action.first};
    if (action.is_pair()) parts.push_back(action.second);
    return parts;
  }

  int Count(Op op, int stage, int row) { return count_[{op, stage, row}]; }
  bool OtherRank(int stage, int neighbour) const {
    return neighbour >= 0 &&
           schedule_.placement.rank_of(stage) != schedule_.placement.rank_of(neighbour);
  }

  bool EachRunsOnce() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
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

  bool Ready(const Part& part) const {
    const int stage = part.stage;
    const int row = part.microbatch;
    const int next = schedule_.placement.next(stage);
    const int previous = schedule_.placement.previous(stage);
    switch (part.op) {
      case Op::kForward:
        if (previous < 0) return true;
        if (communicates_ && OtherRank(stage, previous)) {
          return Done(Op::kSendForward, previous, row) && Done(Op::kRecvForward, stage, row);
        }
        return Done(Op::kForward, previous, row);
      case Op::kBackward:
      case Op::kBackwardInput:
        if (!Done(Op::kForward, stage, row)) return false;
        if (next < 0) return true;
        if (communicates_ && OtherRank(stage, next)) {
          return Done(Op::kSendBackward, next, row) && Done(Op::kRecvBackward, stage, row);
        }
        return InputGradientDone(next, row);
      case Op::kBackwardWeight:
        return Done(Op::kBackwardInput, stage, row);
      case Op::kSendForward:
        return Done(Op::kForward, stage, row);
      case Op::kSendBackward:
        return InputGradientDone(stage, row);
      default:
        return true;
    }
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
        for (const Part& part : parts) done_.insert(KeyOf(part));
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
  std::map<Key, int> count_;
  std::set<Key> done_;
  bool communicates_ = false;
};

inline bool SlowlyValid(const Schedule& schedule) { return SlowChecker(schedule).Valid(); }

}  // namespace penstock::testing
