// GPipe: all forwards in order, then all backwards from the last microbatch to the first.
//
//   rank 0   F0 F1 F2                B2 B1 B0
//   rank 1      F0 F1 F2       B2 B1 B0
//   rank 2         F0 F1 F2 B2 B1 B0
//
// Makespan (m + p - 1)(F + B); all m microbatches in memory on every rank.
// Huang et al., GPipe: Efficient Training of Giant Neural Networks, NeurIPS 2019, section 2.3.
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

Schedule GenerateGPipe(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  const int count = params.microbatches;
  for (int rank = 0; rank < params.ranks; ++rank) {
    schedule.lanes[rank] = WarmUpThenAlternate(
        count, count, [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = count]() mutable { return Backward(rank, --n); });
  }
  return schedule;
}

ClosedForm GpipeFigures(const ScheduleParams& params) {
  ClosedForm form;
  form.peak_memory = params.microbatches;
  if (const auto work = UniformWork(params)) {
    form.makespan =
        (params.microbatches + params.ranks - 1) * *work + 2.0 * (params.ranks - 1) * params.comm;
  }
  return form;
}

}  // namespace

Algorithm GPipe() {
  Algorithm algorithm;
  algorithm.name = "gpipe";
  algorithm.summary = "all forwards, then all backwards";
  algorithm.when =
      "For few microbatches, or together with recompute: the simplest schedule, but it keeps the "
      "activations of all m microbatches alive.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "(m+p-1)(F+B)";
  algorithm.memory = "m";
  algorithm.source = "Huang et al., GPipe, NeurIPS 2019, section 2.3";
  algorithm.generate = GenerateGPipe;
  algorithm.closed_form = GpipeFigures;
  return algorithm;
}

}  // namespace penstock
