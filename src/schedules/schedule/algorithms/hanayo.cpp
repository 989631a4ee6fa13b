// Hanayo: the model runs down and up the ranks in waves. Each wave is a vee. More waves mean
// shorter stages and a smaller bubble, but more messages.
//
//   two waves over 2 ranks: stages 0 1 2 3 4 5 6 7 on ranks 0 1 1 0 0 1 1 0
//   rank 0, m = 2   0F0 0F1 3F0 4F0 3F1 4F1 7F0 7B0 7F1 7B1 4B0 3B0 4B1 3B1 0B0 0B1
//
// List scheduling with whole B. A ready B goes first (lowest microbatch, deepest stage), else F by
// group of p microbatches, then chunk, then microbatch. For few microbatches F by chunk from the
// deepest may be shorter, and is then used. At most p microbatches are in flight, or as many as fit
// the memory limit, up to 2p. If times are unequal, the order is squeezed for them. Makespan about
// 3m + 2(p-1)/w at m = p for F = I = W = 1.
// Liu et al., Hanayo: Harnessing Wave-like Pipeline Parallelism, SC 2023, section 3.
#include <cmath>

#include "schedule/algorithms/algorithms.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/order_for_costs.h"
#include "schedule/search/problem/memory_limit.h"
#include "schedule/search/within_limit.h"

namespace penstock {
namespace {

// More microbatches in flight than this never help.
double MostAlive(int ranks) { return 2.0 * ranks; }

Status CheckHanayo(const ScheduleParams& params) {
  if (params.chunks % 2 != 0) {
    return InvalidParameter("chunks", "{}: must be even; each wave has two", params.chunks);
  }
  if (params.waves != 0 && params.chunks != 2 * std::int64_t{params.waves}) {
    return InvalidParameter("waves", "{}: must be half the number of chunks, {}", params.waves,
                            params.chunks);
  }
  return CheckMemoryLimit(params, Placement::Zigzag(params.ranks, params.chunks));
}

// Prefers forwards by group of p microbatches, then by ascending chunk.
ListRule ByGroup(const Problem& problem) {
  const Placement& placement = problem.placement;
  const int p = placement.ranks(), chunks = placement.chunks();
  ListRule rule = ListRule::BackwardFirst(placement, problem.indices);
  const double groups = std::ceil(static_cast<double>(problem.indices) / p);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const std::size_t s = stage;
    const int chunk = stage / p;
    rule.forward.offset[s] = chunk;
    // Backwards before all forwards, by microbatch; of equal ones the deepest.
    rule.backward.offset[s] = -(groups + 1) * chunks - 2.0 * problem.indices -
                              static_cast<double>(stage) / placement.stages();
  }
  rule.forward.period = chunks;
  rule.forward.group = p;
  return rule;
}

// Returns the shortest lanes of both rules with at most so many microbatches in flight, or also
// with any of the `more`.
std::vector<Lane> LanesByRule(const Problem& problem, double more) {
  const Placement& placement = problem.placement;
  const double alive = MicrobatchesWithin(problem.memory_limit, placement, problem.costs);
  ListScheduler scheduler(problem);
  std::vector<Lane> lanes;
  double shortest = kNever;
  for (double window = alive; window <= alive + more; ++window) {
    for (ListRule rule : {ByGroup(problem), ListRule::BackwardFirst(placement, problem.indices)}) {
      rule.window = static_cast<int>(std::min(window, MostAlive(placement.ranks())));
      const double makespan = scheduler.Run(rule, shortest);
      if (makespan >= shortest) continue;
      shortest = makespan;
      lanes = scheduler.lanes();
    }
  }
  return lanes;
}

Schedule GenerateHanayo(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Zigzag(params.ranks, params.chunks), params);
  Costs costs = CostsOf(params, schedule.placement);
  if (!params.memory_limit) costs = CountingMicrobatches(costs, schedule.placement);
  const Problem problem = {schedule.placement,
                           costs,
                           params.microbatches,
                           1,
                           false,
                           params.memory_limit.value_or(params.ranks)};
  // Without a limit, hanayo is the schedule of its paper. A limit that is no whole number of
  // microbatches has room for a part of another one.
  const double more = params.memory_limit ? 1 : 0;
  const auto search = [more](const Problem& within) {
    return SqueezedOrderForCosts(within,
                                 [more](const Problem& each) { return LanesByRule(each, more); });
  };
  schedule.lanes = params.memory_limit ? BestWithinLimit(problem, search, {}) : search(problem);
  return schedule;
}

}  // namespace

Algorithm Hanayo() {
  Algorithm algorithm;
  algorithm.name = "hanayo";
  algorithm.aliases = {"wave"};
  algorithm.summary = "waves down and up the ranks, with whole backwards";
  algorithm.when =
      "For backwards that cannot be split, with m near p: w waves divide the bubble by about w, "
      "for 2w times the messages. For larger m compare it with 1f1b first.";
  algorithm.placement = PlacementForm::kZigzag;
  algorithm.constraint = "w waves are 2w chunks; memory limit >= 1 microbatch";
  algorithm.makespan = "about 3m+2(p-1)/w at m = p";
  algorithm.memory = "min(m, p), or the limit, at most 2p";
  algorithm.source = "Liu et al., Hanayo, SC 2023, section 3";
  algorithm.supported = {.min_chunks = 2,
                         .max_chunks = kMaxStages,
                         .default_chunks = 2,
                         .waves = true,
                         .memory_limit = true};
  algorithm.check = CheckHanayo;
  algorithm.generate = GenerateHanayo;
  algorithm.closed_form = [](const ScheduleParams& params) {
    const double alive = std::floor(params.memory_limit.value_or(params.ranks));
    return PeakAtEqualTimes(params, std::min(alive, MostAlive(params.ranks)));
  };
  return algorithm;
}

}  // namespace penstock
