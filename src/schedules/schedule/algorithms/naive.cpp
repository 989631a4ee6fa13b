// naive: one microbatch at a time through all stages and back; the bubble that others reduce.
//
//   rank 0   F0          B0 F1          B1
//   rank 1      F0    B0       F1    B1
//   rank 2         F0                F1 ...
//
// Makespan m p (F + B); one microbatch in memory at a time.
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

Schedule GenerateNaive(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    schedule.lanes[rank] = WarmUpThenAlternate(
        params.microbatches, 0, [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = 0]() mutable { return Backward(rank, n++); });
  }
  return schedule;
}

ClosedForm NaiveFigures(const ScheduleParams& params) {
  ClosedForm form;
  form.peak_memory = 1;
  if (const auto work = UniformWork(params)) {
    const double transfers = 2.0 * (params.ranks - 1) * params.comm;
    form.makespan = params.microbatches * (params.ranks * *work + transfers);
  }
  return form;
}

}  // namespace

Algorithm Naive() {
  Algorithm algorithm;
  algorithm.name = "naive";
  algorithm.aliases = {"sequential"};
  algorithm.summary = "one microbatch at a time through all stages and back";
  algorithm.when =
      "As the baseline, or if only the activations of a single microbatch fit. All ranks but one "
      "idle at any time.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "m p (F+B)";
  algorithm.memory = "1";
  algorithm.source = "model parallelism without a pipeline; the baseline of GPipe, section 1";
  algorithm.generate = GenerateNaive;
  algorithm.closed_form = NaiveFigures;
  return algorithm;
}

}  // namespace penstock
