// Chimera: two chains in opposite directions over two replicas of the weights, so that each fills
// the other's bubbles.
//
//   rank 0 of 2, m = 4 (stages 0 and 3)   0F0 3F0 3B0 0B0 0F1 3F1 3B1 0B1
//   rank 1             (stages 1 and 2)   2F0 1F0 1B0 2B0 2F1 1F1 1B1 2B1
//
// Units of p microbatches, p/2 per chain. In slots, microbatch n of unit u at stage k of its chain
// runs F at 2pu + k + 2n and B at 2pu + 2p-1-k + 2n. The two chains never need the same slot of a
// rank, and the lanes keep this order. Makespan 2m + p-2 in F if B = F; with B = 2F and m = p,
// 5p-4. The split form splits the backward and uses list scheduling with p/2 microbatches of each
// chain in flight, for about half of ZB-H1's bubble. If times are unequal, its order is squeezed
// for them.
// Li and Hoefler, Chimera: Efficiently Training Large-Scale Neural Networks with Bidirectional
// Pipelines, SC 2021, section 3.
#include "base/index.h"
#include "schedule/algorithms/algorithms.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/order_for_costs.h"

namespace penstock {
namespace {

Status CheckChimera(const ScheduleParams& params) {
  if (params.ranks % 2 != 0) return InvalidParameter("ranks", "{}: must be even", params.ranks);
  if (params.microbatches % 2 != 0) {
    return InvalidParameter("microbatches", "{}: must be even, half for each direction",
                            params.microbatches);
  }
  return {};
}

// Returns one rank's lane, slot by slot. The rank is stage `rank` of chain 0 and stage p-1-rank of
// chain 1. Each chain uses every other slot; the backwards of one chain in a unit begin where the
// forwards of the other end.
Lane UnitsLane(const ScheduleParams& params, int rank) {
  const int p = params.ranks;
  const int per_chain = params.microbatches / 2;
  const int stage[2] = {rank, 2 * p - 1 - rank};
  const int depth[2] = {rank, p - 1 - rank};
  Lane lane;
  ReserveLong(lane, 2 * Index(params.microbatches));
  for (std::int64_t slot = 0; lane.size() < 2 * Index(params.microbatches); ++slot) {
    const int chain = (slot - depth[0]) % 2 == 0 ? 0 : 1;
    const std::int64_t since = slot - depth[chain];
    if (since < 0) continue;
    const int in_unit = static_cast<int>(since % (2 * p));
    const bool forward = in_unit < p;
    const std::int64_t n = since / (2 * p) * (p / 2) + in_unit % p / 2;
    if (n >= per_chain) continue;
    const int microbatch = static_cast<int>(n);
    lane.push_back(forward ? Forward(stage[chain], microbatch)
                           : Backward(stage[1 - chain], microbatch));
  }
  return lane;
}

std::vector<Lane> SplitLanes(const Problem& problem) {
  ListScheduler scheduler(problem);
  ListRule rule = ListRule::BackwardFirst(problem.placement, problem.indices);
  rule.window = problem.placement.ranks() / 2;
  scheduler.Run(rule);
  return scheduler.TakeLanes();
}

Schedule GenerateChimera(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Bidirectional(params.ranks), params);
  if (!params.split) {
    for (int rank = 0; rank < params.ranks; ++rank) {
      schedule.lanes[rank] = UnitsLane(params, rank);
    }
    return schedule;
  }
  const Costs costs = CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement);
  const Problem problem = {schedule.placement,
                           costs,
                           params.microbatches / 2,
                           1,
                           true,
                           static_cast<double>(params.ranks)};
  schedule.lanes = SqueezedOrderForCosts(problem, SplitLanes);
  return schedule;
}

ClosedForm ChimeraFigures(const ScheduleParams& params) {
  if (params.split) return {};
  ClosedForm form = PeakAtEqualTimes(params, params.ranks);
  if (params.costs || params.comm != 0 || params.microbatches < params.ranks) {
    return form;
  }
  const double p = params.ranks, m = params.microbatches;
  const double f = params.forward, b = params.backward_input + params.backward_weight;
  if (b == f && params.microbatches % params.ranks == 0) form.makespan = (2 * m + p - 2) * f;
  if (b == 2 * f && m == p) form.makespan = (5 * p - 4) * f;
  return form;
}

}  // namespace

Algorithm Chimera() {
  Algorithm algorithm;
  algorithm.name = "chimera";
  algorithm.summary = "two chains in opposite directions over two replicas of the weights";
  algorithm.when =
      "For m = p, if two copies of the weights fit: about half the bubble of 1f1b. For larger m "
      "use its split form, or another schedule.";
  algorithm.placement = PlacementForm::kBidirectional;
  algorithm.constraint = "p and m even";
  algorithm.makespan = "(2m+p-2)F if B = F and p divides m; (5p-4)F if B = 2F and m = p";
  algorithm.memory = "min(m, p); two copies of the weights";
  algorithm.source = "Li and Hoefler, Chimera, SC 2021, section 3";
  algorithm.supported = {.replicas = 2, .split = true};
  algorithm.check = CheckChimera;
  algorithm.generate = GenerateChimera;
  algorithm.closed_form = ChimeraFigures;
  return algorithm;
}

}  // namespace penstock
