// 1F1B: forwards until the first gradient can return, then alternately a forward and a backward,
// then the remaining backwards.
//
//   rank 0 of 4, m = 6   F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5
//   rank 3 of 4          F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
//
// Makespan (m + p - 1)(F + B) as with GPipe, but only min(m, p - r) microbatches in memory on rank
// r.
// Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021, section 2.2.
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

Schedule GenerateOneFOneB(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int warmup = std::min(params.microbatches, params.ranks - 1 - rank);
    schedule.lanes[rank] = WarmUpThenAlternate(
        params.microbatches, warmup, [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = 0]() mutable { return Backward(rank, n++); });
  }
  return schedule;
}

ClosedForm OneFOneBFigures(const ScheduleParams& params) {
  ClosedForm form;
  form.peak_memory = std::min(params.microbatches, params.ranks);
  const auto work = UniformWork(params);
  // With a latency the turns of adjacent ranks no longer mesh: no closed form.
  if (work && params.comm == 0) form.makespan = (params.microbatches + params.ranks - 1) * *work;
  return form;
}

}  // namespace

Algorithm OneFOneB() {
  Algorithm algorithm;
  algorithm.name = "1f1b";
  algorithm.aliases = {"one-f-one-b", "pipedream-flush", "basic-1f1b"};
  algorithm.summary = "alternately one forward and one backward after a short warm-up";
  algorithm.when =
      "The safe default: as fast as gpipe, with memory that does not grow with m. Consider others "
      "if its bubble, (p-1)/(m+p-1), is too large.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "(m+p-1)(F+B)";
  algorithm.memory = "min(m, p)";
  algorithm.source = "Narayanan et al., PipeDream-2BW, ICML 2021, section 2.2 (PipeDream-Flush)";
  algorithm.generate = GenerateOneFOneB;
  algorithm.closed_form = OneFOneBFigures;
  return algorithm;
}

}  // namespace penstock
