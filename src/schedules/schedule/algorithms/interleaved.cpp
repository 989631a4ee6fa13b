// Interleaved 1F1B: each rank holds v stages, p apart, so that warm-up and drain take 1/v of the
// time.
//
//   rank 0 of 2, v = 2, m = 4   0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
//
// The microbatches go in rounds of about p: max(1, floor(m/p)) rounds, as even as possible, longer
// ones first; g is the size of the first. Forwards go by round, ascending chunk and microbatch;
// backwards by round, descending chunk and microbatch. Even rounds are faster than padding a short
// last one, and they avoid deadlocks for every m. Makespan (mv + p - 1)(F + B)/v, for m < p (pv + m
// - 1)(F + B)/v; peak memory ((v-1)g + 2p - 1)/v.
// A group sets the size of the rounds. Below p it splits the backward, as interleaved-zb does.
// Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, section 2.2.2.
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/rounds.h"

namespace penstock {
namespace {

// The number of forwards before the first backward of the rank.
int WarmUp(const ScheduleParams& params, int rank) {
  const std::int64_t warmup = std::int64_t{2} * (params.ranks - 1 - rank) +
                              std::int64_t{params.chunks - 1} * Rounds::Of(params).Size(0);
  return static_cast<int>(std::min(warmup, std::int64_t{params.microbatches} * params.chunks));
}

// With whole B, rounds of fewer than p microbatches would deadlock. The split form can run them.
bool TakesSplitForm(const ScheduleParams& params) {
  return params.group != 0 && params.group < params.ranks;
}

Schedule GenerateInterleaved(const ScheduleParams& params) {
  if (TakesSplitForm(params)) return GenerateInterleavedZb(params);
  Schedule schedule = EmptySchedule(Placement::Looped(params.ranks, params.chunks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    RoundOrder forwards(params, rank, RoundOrder::Direction::kChunksUp);
    RoundOrder backwards(params, rank, RoundOrder::Direction::kChunksDown);
    schedule.lanes[rank] = WarmUpThenAlternate(
        params.microbatches * params.chunks, WarmUp(params, rank),
        [&forwards] { return forwards.Next(Op::kForward); },
        [&backwards] { return backwards.Next(Op::kBackward); });
  }
  return schedule;
}

ClosedForm InterleavedFigures(const ScheduleParams& params) {
  if (TakesSplitForm(params)) return {};
  const int p = params.ranks, v = params.chunks, m = params.microbatches;
  ClosedForm form;
  const double count = static_cast<double>(m) * v;
  form.peak_memory = std::min(count, static_cast<double>(WarmUp(params, 0)) + 1) / v;
  const auto work = UniformWork(params);
  if (work && params.comm == 0 && params.group == 0) {
    form.makespan = (m >= p ? count + p - 1 : static_cast<double>(p) * v + m - 1) * *work / v;
  }
  return form;
}

}  // namespace

Algorithm Interleaved() {
  Algorithm algorithm;
  algorithm.name = "interleaved";
  algorithm.aliases = {"vpp", "1f1b-interleaved", "interleaved-1f1b"};
  algorithm.constraint = "group G >= p/2";
  algorithm.summary = "1f1b over v stages per rank: 1/v of the bubble, more messages";
  algorithm.when =
      "For m small compared with p, with fast links: v chunks divide the bubble by v, for v times "
      "the messages and slightly more memory.";
  algorithm.placement = PlacementForm::kLooped;
  algorithm.makespan = "(mv+p-1)(F+B)/v; (pv+m-1)(F+B)/v for m < p";
  algorithm.memory = "((v-1)g+2p-1)/v, g about p; p+(p-1)/v if p divides m";
  algorithm.source = "Narayanan et al., Megatron-LM, SC 2021, section 2.2.2";
  algorithm.supported = {
      .min_chunks = 1, .max_chunks = kMaxStages, .default_chunks = 2, .group = true};
  algorithm.check = CheckGroup;
  algorithm.generate = GenerateInterleaved;
  algorithm.closed_form = InterleavedFigures;
  return algorithm;
}

}  // namespace penstock
