// ZB-H2: ZB-H1 with about twice the memory. The warm-up has enough forwards that no rank idles
// between its first and last action.
//
//   rank 0 of 3, m = 6   F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 ...
//   rank 2               F0 I0 F1 I1 F2 I2 ...                 W at the end
//
// Event-driven: a free rank runs the next I if it is ready; else the next F if it is ready, fewer
// than 2(p-r)-1 forwards are ahead of their I and fewer than 2p-1 microbatches are in memory; else
// a W. The times are F = I = W, as in the paper, or the real ones if that is faster. For F = I = W
// = 1: makespan as ZB-H1 (its idle time has moved to the front), span 3m from m = 2p-1, peak memory
// 2p-1.
// Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.3 (ZB-H2).
#include "schedule/algorithms/algorithms.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/order_for_costs.h"

namespace penstock {
namespace {

std::vector<Lane> ZbH2Lanes(const Problem& problem) {
  const int p = problem.placement.ranks();
  ListScheduler scheduler(problem);
  ListRule rule = ListRule::BackwardFirst(problem.placement, problem.indices);
  for (int rank = 0; rank < p; ++rank) rule.most_ahead.push_back(2 * (p - rank) - 1);
  scheduler.Run(rule);
  return scheduler.TakeLanes();
}

Schedule GenerateZbH2(const ScheduleParams& params) {
  const int p = params.ranks;
  Schedule schedule = EmptySchedule(Placement::Linear(p), params);
  const Costs costs = CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement);
  schedule.lanes = OrderForCosts(
      {schedule.placement, costs, params.microbatches, 1, true, 2.0 * p - 1}, ZbH2Lanes);
  return schedule;
}

ClosedForm ZbH2Figures(const ScheduleParams& params) {
  const int p = params.ranks, m = params.microbatches;
  ClosedForm form = PeakAtEqualTimes(params, 2 * p - 1);
  if (EqualTimes(params)) {
    form.makespan = (m > p ? 3.0 * m + p - 1 : 2.0 * m + 2.0 * p - 1) * params.forward;
  }
  return form;
}

}  // namespace

Algorithm ZbH2() {
  Algorithm algorithm;
  algorithm.name = "zb-h2";
  algorithm.aliases = {"zb2p"};
  algorithm.summary = "zb-h1 with twice the memory: no idle time within a rank's span";
  algorithm.when =
      "For steps that follow each other without a flush, with memory for about 2p microbatches: "
      "no rank idles between its first and its last action.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "3m+p-1, span 3m from m = 2p-1; 2m+2p-1 for m <= p";
  algorithm.memory = "min(m, 2p-1)";
  algorithm.source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.3";
  algorithm.generate = GenerateZbH2;
  algorithm.closed_form = ZbH2Figures;
  return algorithm;
}

}  // namespace penstock
