// The order of chunks and microbatches in looped schedules (interleaved and its split form).
#pragma once

#include <algorithm>

#include "schedule/catalog.h"

namespace penstock {

// Microbatches go in rounds of about `group` (default p): max(1, floor(m/group)) rounds, as even as
// possible, longer ones first.
struct Rounds {
  int count = 1;
  int microbatches = 0;

  static Rounds Of(const ScheduleParams& params) {
    const int group = params.group > 0 ? params.group : params.ranks;
    return {std::max(1, params.microbatches / group), params.microbatches};
  }
  int Size(int round) const {
    return microbatches / count + (round < microbatches % count ? 1 : 0);
  }
};

// Walks (round, chunk, microbatch) in order. Next returns the action of each step on a rank.
class RoundOrder {
 public:
  enum class Direction { kChunksUp, kChunksDown };

  RoundOrder(const ScheduleParams& params, int rank, Direction direction)
      : rounds_(Rounds::Of(params)),
        first_stage_(direction == Direction::kChunksUp ? rank
                                                       : rank + (params.chunks - 1) * params.ranks),
        stage_step_(direction == Direction::kChunksUp ? params.ranks : -params.ranks),
        chunks_(params.chunks) {
    StartRound();
  }

  Action Next(Op op) {
    if (microbatch_ == round_end_) NextChunk();
    return MakeAction(op, stage_, microbatch_++);
  }

 private:
  void NextChunk() {
    microbatch_ = round_begin_;
    stage_ += stage_step_;
    if (++chunk_ == chunks_) {
      round_begin_ = round_end_;
      ++round_;
      StartRound();
    }
  }

  void StartRound() {
    round_end_ = round_begin_ + rounds_.Size(round_);
    microbatch_ = round_begin_;
    stage_ = first_stage_;
    chunk_ = 0;
  }

  const Rounds rounds_;
  const int first_stage_, stage_step_, chunks_;
  int round_ = 0, round_begin_ = 0, round_end_ = 0;
  int chunk_ = 0, stage_ = 0, microbatch_ = 0;
};

}  // namespace penstock
