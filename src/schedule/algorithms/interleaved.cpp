// Interleaved 1F1B: each rank holds v stages, p apart, so that warm-up and drain cost 1/v.
//
//   rank 0 of 2, v = 2, m = 4   0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
//
// The microbatches go in rounds of about p: max(1, floor(m/p)) of them, as even as possible, longer
// ones first; g is the first one's size. Forwards by round, chunk up, microbatch; backwards by
// round, chunk down, microbatch. Even rounds are faster than padding a short last one, and they
// keep the order free of deadlock for every m.
// Makespan (mv + p - 1)(F + B)/v, for m < p (pv + m - 1)(F + B)/v; peak ((v-1)g + 2p - 1)/v.
// Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, section 2.2.2.
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

// Walks (round, chunk, microbatch) in order and gives stage and microbatch of each step.
class RoundOrder {
 public:
  enum class Direction { kChunksUp, kChunksDown };

  RoundOrder(const ScheduleParams& params, int rank, Direction direction)
      : rounds_(std::max(1, params.microbatches / params.ranks)),
        microbatches_(params.microbatches),
        first_stage_(direction == Direction::kChunksUp ? rank
                                                       : rank + (params.chunks - 1) * params.ranks),
        stage_step_(direction == Direction::kChunksUp ? params.ranks : -params.ranks),
        chunks_(params.chunks) {
    StartRound();
  }

  Action Next(Op op) {
    if (microbatch_ == round_end_) {
      microbatch_ = round_begin_;
      stage_ += stage_step_;
      if (++chunk_ == chunks_) {
        round_begin_ = round_end_;
        ++round_;
        StartRound();
      }
    }
    return MakeAction(op, stage_, microbatch_++);
  }

 private:
  void StartRound() {
    const int longer = microbatches_ % rounds_;
    round_end_ = round_begin_ + microbatches_ / rounds_ + (round_ < longer ? 1 : 0);
    microbatch_ = round_begin_;
    stage_ = first_stage_;
    chunk_ = 0;
  }

  const int rounds_, microbatches_;
  const int first_stage_, stage_step_, chunks_;
  int round_ = 0, round_begin_ = 0, round_end_ = 0;
  int chunk_ = 0, stage_ = 0, microbatch_ = 0;
};

int FirstRound(const ScheduleParams& params) {
  const int rounds = std::max(1, params.microbatches / params.ranks);
  return (params.microbatches + rounds - 1) / rounds;
}

// Forwards on rank 0 before its first backward can have come back, for any rank.
int WarmUp(const ScheduleParams& params, int rank) {
  const std::int64_t warmup = std::int64_t{2} * (params.ranks - 1 - rank) +
                              std::int64_t{params.chunks - 1} * FirstRound(params);
  return static_cast<int>(std::min(warmup, std::int64_t{params.microbatches} * params.chunks));
}

Schedule Rows(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Looped(params.ranks, params.chunks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    RoundOrder forwards(params, rank, RoundOrder::Direction::kChunksUp);
    RoundOrder backwards(params, rank, RoundOrder::Direction::kChunksDown);
    schedule.lanes[static_cast<std::size_t>(rank)] = WarmUpThenAlternate(
        params.microbatches * params.chunks, WarmUp(params, rank),
        [&forwards] { return forwards.Next(Op::kForward); },
        [&backwards] { return backwards.Next(Op::kBackward); });
  }
  return schedule;
}

ClosedForm Figures(const ScheduleParams& params) {
  const int p = params.ranks, v = params.chunks, m = params.microbatches;
  ClosedForm form;
  const double count = static_cast<double>(m) * v;
  form.peak_memory = std::min(count, static_cast<double>(WarmUp(params, 0)) + 1) / v;
  const auto work = UniformWork(params);
  if (work && params.comm == 0) {
    form.makespan = (m >= p ? count + p - 1 : static_cast<double>(p) * v + m - 1) * *work / v;
  }
  return form;
}

}  // namespace

Algorithm Interleaved() {
  Algorithm algorithm;
  algorithm.name = "interleaved";
  algorithm.aliases = {"vpp", "1f1b-interleaved", "interleaved-1f1b"};
  algorithm.summary = "1f1b over v stages a rank: a v-th of the bubble, more messages";
  algorithm.makespan = "(mv+p-1)(F+B)/v; (pv+m-1)(F+B)/v for m < p";
  algorithm.memory = "((v-1)g+2p-1)/v, g about p; p+(p-1)/v where p divides m";
  algorithm.source = "Narayanan et al., Megatron-LM, SC 2021, section 2.2.2";
  algorithm.knobs = {.min_chunks = 1, .max_chunks = kMaxStages, .default_chunks = 2};
  algorithm.generate = Rows;
  algorithm.closed_form = Figures;
  return algorithm;
}

}  // namespace penstock
