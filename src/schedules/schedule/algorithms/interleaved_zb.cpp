// Interleaved zero bubble: the rounds and orders of interleaved 1F1B with the backward split, so
// that weight gradients fill the drain.
//
//   rank 0 of 2, v = 2, m = 2   0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1
//   rank 1                      1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1
//
// Rank r runs p-1-r + (v-1)g forwards, then F, I and W in turn with W delayed by r turns; g is the
// size of the first round. If p divides m: makespan m(F+I+W) + (p-1)/v for F = I = W = 1, and peak
// memory p.
//
// A group G < p makes rounds of G microbatches, for less memory: about G + (p - G)/v. If the last
// round would be short, its lanes are written in full and the missing microbatches removed. At G <=
// p/2, W is delayed by floor(2r/3) turns. Below p/2 a round's first microbatch returns too late for
// its next chunk and the lanes can deadlock, so it is refused.
//
// Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2; Qi et al., Pipeline
// Parallelism with Controllable Memory, NeurIPS 2024 (grouped interleaving).
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/rounds.h"
#include "schedule/algorithms/split_turns.h"

namespace penstock {
namespace {

SplitTurns Turns(const ScheduleParams& params, int rank) {
  const std::int64_t count = std::int64_t{params.microbatches} * params.chunks;
  const std::int64_t warmup =
      params.ranks - 1 - rank + std::int64_t{params.chunks - 1} * Rounds::Of(params).Size(0);
  const bool small_group = params.group > 0 && 2 * params.group <= params.ranks;
  return {static_cast<int>(count), static_cast<int>(std::min(count, warmup)),
          small_group ? 2 * rank / 3 : rank};
}

ClosedForm InterleavedZbFigures(const ScheduleParams& params) {
  ClosedForm form;
  const double p = params.ranks, v = params.chunks, m = params.microbatches;
  if (params.group != 0 && params.group != params.ranks) return form;
  if (params.microbatches % params.ranks != 0) return form;
  form.peak_memory = p;
  if (EqualTimes(params)) form.makespan = (3 * m + (p - 1) / v) * params.forward;
  return form;
}

Schedule FullRounds(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Looped(params.ranks, params.chunks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    RoundOrder forwards(params, rank, RoundOrder::Direction::kChunksUp);
    RoundOrder inputs(params, rank, RoundOrder::Direction::kChunksDown);
    RoundOrder weights = inputs;
    schedule.lanes[rank] = WarmUpThenSplitTurns(
        Turns(params, rank), [&forwards] { return forwards.Next(Op::kForward); },
        [&inputs] { return inputs.Next(Op::kBackwardInput); },
        [&weights] { return weights.Next(Op::kBackwardWeight); });
  }
  return schedule;
}

}  // namespace

Status CheckGroup(const ScheduleParams& params) {
  if (params.group != 0 && 2 * std::int64_t{params.group} < params.ranks) {
    return InvalidParameter("group",
                            "{}: must be at least {}; below half the ranks it can deadlock",
                            params.group, (params.ranks + 1) / 2);
  }
  return {};
}

Schedule GenerateInterleavedZb(const ScheduleParams& params) {
  const bool short_round = params.group != 0 && params.group < params.microbatches &&
                           params.microbatches % params.group != 0;
  if (!short_round) return FullRounds(params);
  // Removing whole microbatches from a valid schedule leaves a valid one.
  ScheduleParams padded = params;
  padded.microbatches += params.group - params.microbatches % params.group;
  Schedule schedule = FullRounds(padded);
  schedule.microbatches = params.microbatches;
  for (Lane& lane : schedule.lanes) {
    std::erase_if(
        lane, [&](const Action& action) { return action.first.microbatch >= params.microbatches; });
  }
  return schedule;
}

Algorithm InterleavedZb() {
  Algorithm algorithm;
  algorithm.name = "interleaved-zb";
  algorithm.aliases = {"interleaved-zero-bubble", "zb-interleaved", "group-interleaved-1f1b"};
  algorithm.summary = "interleaved with split backwards: 1/v of zb-h1's bubble";
  algorithm.when =
      "For the shortest step with fast links, if p divides m. A group G from p/2 to p-1 also saves "
      "memory.";
  algorithm.placement = PlacementForm::kLooped;
  algorithm.constraint = "group G >= p/2";
  algorithm.makespan = "3m+(p-1)/v if p divides m";
  algorithm.memory = "p if p divides m; about G+(p-G)/v for a group G < p";
  algorithm.source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2";
  algorithm.supported = {
      .min_chunks = 1, .max_chunks = kMaxStages, .default_chunks = 2, .group = true};
  algorithm.check = CheckGroup;
  algorithm.generate = GenerateInterleavedZb;
  algorithm.closed_form = InterleavedZbFigures;
  return algorithm;
}

}  // namespace penstock
