// ZB-H1: 1F1B with the backward in halves. Weight gradients wait, and fill the drain.
//
//   rank 0 of 4, m = 4   F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3
//   rank 3 of 4          F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
//
// Rank r runs 1F1B's warm-up, then F, I and W in turn, with W r steps behind: so every rank holds
// what 1F1B's rank 0 holds. For F = I = W = 1: makespan 3m + p - 1 (2m + 2p - 1 for m <= p), a
// third of 1F1B's bubble; peak p, as 1F1B's. Qi et al., Zero Bubble Pipeline Parallelism, ICLR
// 2024, section 2.2 (ZB-H1).
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/split_turns.h"

namespace penstock {
namespace {

Schedule Rows(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  const int count = params.microbatches;
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int warmup = std::min(count, params.ranks - 1 - rank);
    schedule.lanes[static_cast<std::size_t>(rank)] = WarmUpThenSplitTurns(
        {count, warmup, rank}, [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = 0]() mutable { return BackwardInput(rank, n++); },
        [rank, n = 0]() mutable { return BackwardWeight(rank, n++); });
  }
  return schedule;
}

ClosedForm Figures(const ScheduleParams& params) {
  const int p = params.ranks, m = params.microbatches;
  ClosedForm form;
  form.peak_memory = std::min(m, p);
  if (EqualTimes(params)) {
    form.makespan = (m > p ? 3.0 * m + p - 1 : 2.0 * m + 2.0 * p - 1) * params.forward;
  }
  return form;
}

}  // namespace

Algorithm ZbH1() {
  Algorithm algorithm;
  algorithm.name = "zb-h1";
  algorithm.aliases = {"zb1p", "zero-bubble"};
  algorithm.summary = "1f1b with the backward in halves: a third of the bubble, the same memory";
  algorithm.when =
      "In place of 1f1b wherever the backward can be split in I and W: a third of the bubble at "
      "the same memory and the same messages.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "3m+p-1; 2m+2p-1 for m <= p";
  algorithm.memory = "min(m, p)";
  algorithm.source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2";
  algorithm.generate = Rows;
  algorithm.closed_form = Figures;
  return algorithm;
}

}  // namespace penstock
