// A slow, obvious checker of schedules, to compare with the validator. It runs the lanes one action
// at a time and applies the rules literally, with sets and maps.
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
        microbatches_per_update_(schedule.weights == WeightPolicy::kStashed
                                     ? schedule.slices
                                     : schedule.indices() / schedule.steps),
        updates_(schedule.indices() / microbatches_per_update_) {}

  bool Valid() { return AllPartsAreAllowed() && EachRunsOnce() && RunsToTheEnd(); }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key KeyOf(const Part& part) { return {part.op, part.stage, part.microbatch}; }
  static std::vector<Part> PartsOf(const Action& action) {
    std::vector<Part> parts = {action.first};
    if (action.is_pair()) parts.push_back(action.second);
    return parts;
  }

  // Checks that ops are known, stages are on the rank, and microbatch indices exist; that pairs are
  // a forward and a backward.
  bool AllPartsAreAllowed() {
    for (std::size_t rank = 0; rank < schedule_.lanes.size(); ++rank) {
      for (const Action& action : schedule_.lanes[rank]) {
        for (const Part& part : PartsOf(action)) {
          if (part.op >= Op::kNone || part.stage >= schedule_.stages()) return false;
          if (schedule_.placement.rank_of(part.stage) != static_cast<int>(rank)) return false;
          if (HasMicrobatch(part.op) != (part.microbatch >= 0)) return false;
          if (part.microbatch >= schedule_.indices()) return false;
          if (action.is_pair() && !IsCompute(part.op)) return false;
          if (IsVocabulary(part.op) &&
              (!schedule_.vocabulary || part.stage != FirstStageOf(static_cast<int>(rank)))) {
            return false;
          }
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

  int Count(Op op, int stage, int microbatch = -1) { return count_[{op, stage, microbatch}]; }
  bool OtherRank(int stage, int neighbor) const {
    return neighbor >= 0 &&
           schedule_.placement.rank_of(stage) != schedule_.placement.rank_of(neighbor);
  }

  int FirstStageOf(int rank) const { return schedule_.placement.stages_of(rank).front(); }
  bool OnAllRanks(Op op, int microbatch) const {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      if (!Done(op, FirstStageOf(rank), microbatch)) return false;
    }
    return true;
  }
  int Last() const { return schedule_.stages() - 1; }

  // A schedule without a flush must contain its STEPs.
  bool Steps() const {
    return used_.count(Op::kStep) > 0 || schedule_.weights != WeightPolicy::kFlush;
  }

  // What stages of a model run of the backward.
  StageBackward BackwardOf(int stage) const {
    if (stage < 0 || schedule_.backward.empty()) return StageBackward::kWhole;
    return schedule_.backward[stage % schedule_.placement.chain_length()];
  }
  bool HasBackward(int stage) const { return BackwardOf(stage) != StageBackward::kNone; }
  bool Trains(int stage) const {
    return BackwardOf(stage) == StageBackward::kWhole ||
           BackwardOf(stage) == StageBackward::kAdapters;
  }

  bool BackwardRunsOnce(int stage, int microbatch) {
    const int whole = Count(Op::kBackward, stage, microbatch);
    const int input = Count(Op::kBackwardInput, stage, microbatch);
    const int weight = Count(Op::kBackwardWeight, stage, microbatch);
    switch (BackwardOf(stage)) {
      case StageBackward::kWhole:
        return whole == 1 ? input == 0 && weight == 0 : whole == 0 && input == 1 && weight == 1;
      case StageBackward::kAdapters:
      case StageBackward::kInput:
        return whole == 0 && input == 1 && weight == 0;
      case StageBackward::kNone:
        break;
    }
    for (const Op op : {Op::kOffload, Op::kReload, Op::kRecompute}) {
      if (Count(op, stage, microbatch) != 0) return false;
    }
    return whole == 0 && input == 0 && weight == 0;
  }

  bool UpdatesRunOnce(int stage) {
    const int updates = Trains(stage) ? updates_ : 0;
    if (Count(Op::kStep, stage) != (Steps() ? updates : 0)) return false;
    if (Count(Op::kReduceGrad, stage) != (used_.count(Op::kReduceGrad) > 0 ? updates : 0)) {
      return false;
    }
    const int waits = Count(Op::kWaitReduceGrad, stage);
    return waits == (used_.count(Op::kWaitReduceGrad) > 0 ? updates : 0);
  }

  bool EachRunsOnce() {
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (!UpdatesRunOnce(stage)) return false;
      const Placement& placement = schedule_.placement;
      const int next = communicates_ && OtherRank(stage, placement.next(stage));
      const int previous = communicates_ && OtherRank(stage, placement.previous(stage));
      const int to_previous = previous && HasBackward(placement.previous(stage));
      const int from_next = next && HasBackward(stage);
      for (int microbatch = 0; microbatch < schedule_.indices(); ++microbatch) {
        if (Count(Op::kForward, stage, microbatch) != 1) return false;
        if (!BackwardRunsOnce(stage, microbatch)) return false;
        if (Count(Op::kSendForward, stage, microbatch) != next) return false;
        if (Count(Op::kRecvBackward, stage, microbatch) != from_next) return false;
        if (Count(Op::kSendBackward, stage, microbatch) != to_previous) return false;
        if (Count(Op::kRecvForward, stage, microbatch) != previous) return false;
        const bool waits = used_.count(Op::kWaitSendForward) + used_.count(Op::kWaitSendBackward);
        if (Count(Op::kWaitSendForward, stage, microbatch) != (waits ? next : 0)) return false;
        if (Count(Op::kWaitSendBackward, stage, microbatch) != (waits ? to_previous : 0)) {
          return false;
        }
      }
    }
    for (int rank = 0; rank < schedule_.ranks() && schedule_.vocabulary; ++rank) {
      for (int microbatch = 0; microbatch < schedule_.indices(); ++microbatch) {
        for (const Op op :
             {Op::kEmbed, Op::kVocabularyInput, Op::kVocabularyWeight, Op::kEmbedGradient}) {
          if (Count(op, FirstStageOf(rank), microbatch) != 1) return false;
        }
      }
    }
    return true;
  }

  bool Done(Op op, int stage, int microbatch) const {
    return done_.count({op, stage, microbatch}) > 0;
  }
  bool InputGradientDone(int stage, int microbatch) const {
    return Done(Op::kBackwardInput, stage, microbatch) || Done(Op::kBackward, stage, microbatch);
  }
  // How often UNSHARD, RESHARD, REDUCE_GRAD or STEP of the stage has run.
  int Times(Op op, int stage) const {
    const auto found = times_.find({op, stage});
    return found == times_.end() ? 0 : found->second;
  }
  bool Gathered(int stage) const { return Times(Op::kUnshard, stage) > Times(Op::kReshard, stage); }
  bool Offloaded(int stage, int microbatch) const {
    return Done(Op::kOffload, stage, microbatch) && !Done(Op::kReload, stage, microbatch);
  }

  bool ForwardReady(int stage, int microbatch) const {
    if (microbatch % schedule_.slices != 0 && !Done(Op::kForward, stage, microbatch - 1))
      return false;
    const int previous = schedule_.placement.previous(stage);
    if (previous < 0) return !schedule_.vocabulary || OnAllRanks(Op::kEmbed, microbatch);
    if (communicates_ && OtherRank(stage, previous)) {
      return Done(Op::kSendForward, previous, microbatch) &&
             Done(Op::kRecvForward, stage, microbatch);
    }
    return Done(Op::kForward, previous, microbatch);
  }

  bool BackwardReady(int stage, int microbatch) const {
    if (!Done(Op::kForward, stage, microbatch) || Offloaded(stage, microbatch)) return false;
    if (microbatch % schedule_.slices != schedule_.slices - 1 &&
        !InputGradientDone(stage, microbatch + 1)) {
      return false;
    }
    const int next = schedule_.placement.next(stage);
    if (next < 0) return !schedule_.vocabulary || OnAllRanks(Op::kVocabularyInput, microbatch);
    if (communicates_ && OtherRank(stage, next)) {
      return Done(Op::kSendBackward, next, microbatch) &&
             Done(Op::kRecvBackward, stage, microbatch);
    }
    return InputGradientDone(next, microbatch);
  }

  // Whether the versions of the weights that the microbatch may read exist. After j STEPs these
  // are: with a flush W(j); stashed, W(j) and what microbatches in flight have read;
  // double-buffered, W(j) and W(j-1).
  bool VersionReady(int stage, int microbatch) const {
    if (!Steps() || !Trains(stage)) return true;
    const int steps = Times(Op::kStep, stage);
    const int batch = microbatch / (schedule_.indices() / schedule_.steps);
    const int in_chain = schedule_.placement.model_stage(stage);
    const int downstream_stages = schedule_.placement.chain_length() - 1 - in_chain;
    switch (schedule_.weights) {
      case WeightPolicy::kFlush:
        return steps == batch;
      case WeightPolicy::kStashed:
        return steps >= microbatch / schedule_.slices - downstream_stages;
      case WeightPolicy::kDoubleBuffered: {
        const int version = std::max(0, batch - 1);
        return version == steps || version == steps - 1;
      }
    }
    return false;
  }

  bool GradientsReady(int stage, int update) {
    for (int microbatch = update * microbatches_per_update_;
         microbatch < (update + 1) * microbatches_per_update_; ++microbatch) {
      const bool in_input = BackwardOf(stage) == StageBackward::kAdapters;
      const bool ended =
          Done(in_input ? Op::kBackwardInput : Op::kBackwardWeight, stage, microbatch) ||
          Done(Op::kBackward, stage, microbatch);
      if (!ended) return false;
      const bool has_share =
          schedule_.vocabulary && stage == FirstStageOf(schedule_.placement.rank_of(stage));
      if (has_share && (!Done(Op::kVocabularyWeight, stage, microbatch) ||
                        !Done(Op::kEmbedGradient, stage, microbatch))) {
        return false;
      }
    }
    return true;
  }
  bool Reduced(int stage, int update) const {
    return used_.count(Op::kReduceGrad) == 0 || Times(Op::kReduceGrad, stage) > update;
  }

  // Whether the gradients of the stage and its replicas are complete, and reduced if they are to
  // be.
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
    const int microbatch = part.microbatch;
    const bool reads_weights = IsCompute(part.op) || part.op == Op::kRecompute;
    if (reads_weights && used_.count(Op::kUnshard) > 0 && !Gathered(stage)) return false;
    if (IsCompute(part.op) && !VersionReady(stage, microbatch)) return false;
    const bool between = microbatch >= 0 && Done(Op::kForward, stage, microbatch) &&
                         !InputGradientDone(stage, microbatch);  // F has run, I or B has not
    switch (part.op) {
      case Op::kForward:
        return ForwardReady(stage, microbatch);
      case Op::kBackward:
      case Op::kBackwardInput:
        return BackwardReady(stage, microbatch);
      case Op::kBackwardWeight:
        return Done(Op::kBackwardInput, stage, microbatch);
      case Op::kSendForward:
        return Done(Op::kForward, stage, microbatch);
      case Op::kSendBackward:
        return InputGradientDone(stage, microbatch);
      case Op::kWaitSendForward:
        return Done(Op::kSendForward, stage, microbatch) &&
               Done(Op::kRecvForward, stage + 1, microbatch);
      case Op::kWaitSendBackward:
        return Done(Op::kSendBackward, stage, microbatch) &&
               Done(Op::kRecvBackward, stage - 1, microbatch);
      case Op::kUnshard:
        return !Gathered(stage);
      case Op::kReshard:
        return Gathered(stage);
      case Op::kReduceGrad:
        return ReduceReady(stage);
      case Op::kWaitReduceGrad:
        return Times(Op::kWaitReduceGrad, stage) < Times(Op::kReduceGrad, stage);
      case Op::kStep:
        return StepReady(stage);
      case Op::kOffload:
        return between && !Done(Op::kOffload, stage, microbatch) &&
               !Done(Op::kRecompute, stage, microbatch);
      case Op::kReload:
        return between && Offloaded(stage, microbatch);
      case Op::kRecompute:
        return between && !Offloaded(stage, microbatch) && !Done(Op::kRecompute, stage, microbatch);
      case Op::kVocabularyInput:
        return Done(Op::kForward, Last(), microbatch);
      case Op::kVocabularyWeight:
        return OnAllRanks(Op::kVocabularyInput, microbatch);
      case Op::kEmbedGradient:
        return InputGradientDone(0, microbatch);
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
  const int microbatches_per_update_, updates_;
  std::map<Key, int> count_;  // in all lanes
  std::set<Op> used_;
  std::set<Key> done_;
  std::map<std::pair<Op, int>, int> times_;  // by op and stage
  bool communicates_ = false;
};

inline bool SlowlyValid(const Schedule& schedule) { return SlowChecker(schedule).Valid(); }

}  // namespace penstock::testing
