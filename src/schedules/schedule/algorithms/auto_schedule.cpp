// zb-auto and v-auto: the shortest zero-bubble schedule that is found for any costs (even or
// uneven), latency and memory limit. zb-auto has one chunk per rank, v-auto a vee.
//
//   zb-auto, 2 ranks, m = 3, limit 2
//   rank 0   F0 F1 .  I0 W0 F2 I1 W1 .  I2 W2
//   rank 1   .  F0 I0 F1 I1 W0 W1 F2 I2 W2
//
// Starts from list scheduling, from patterns, and from the rule-based schedules that fit the limit,
// and improves the best of them (search.h). Neither those schedules nor a smaller limit beats the
// result (within_limit.h). The limit is in activations of one rank's share of one microbatch, or in
// the unit of the costs if they are given. The default is 2p, about the memory of ZB-H2.
// Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3 (automatic scheduling); Qi et
// al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3.
#include "schedule/algorithms/auto_schedule.h"

#include <algorithm>

#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/split_turns.h"
#include "schedule/algorithms/v_schedules.h"
#include "schedule/algorithms/zbv.h"
#include "schedule/search/problem/memory_limit.h"
#include "schedule/search/search.h"
#include "schedule/search/uniform_blocks.h"
#include "schedule/search/within_limit.h"

namespace penstock {
namespace {

// The number of building blocks that v-auto starts from.
constexpr std::size_t kUniformBlocks = 8;

double Limit(const ScheduleParams& params, const Placement& placement, const Costs& costs) {
  return params.memory_limit.value_or(2.0 * params.ranks * LeastMemory(placement, costs));
}

// Returns ZB-H1's turns with the warm-up that fits the limit: `reach` forwards per downstream rank
// (1 in ZB-H1, 2 in ZB-H2), and as many pending weight gradients as the remaining memory allows.
std::vector<Lane> TurnsWithin(const Problem& problem, int reach) {
  const int p = problem.placement.ranks();
  std::vector<Lane> lanes;
  int warmup = problem.indices;
  for (int rank = 0; rank < p; ++rank) {
    const double activation = problem.costs.stages[rank].activation;
    const double fit = problem.memory_limit * (1 + kRounding) / activation;
    const int alive = static_cast<int>(std::min<double>(problem.indices + 1, fit));
    // Never more than on the previous rank, whose forwards it waits for.
    warmup = std::max(0, std::min({warmup, reach * (p - 1 - rank), alive - 1}));
    const int lag = std::max(0, std::min(reach * rank, alive - 1 - warmup));
    lanes.push_back(WarmUpThenSplitTurns(
        {problem.indices, warmup, lag}, [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = 0]() mutable { return BackwardInput(rank, n++); },
        [rank, n = 0]() mutable { return BackwardWeight(rank, n++); }));
  }
  return lanes;
}

// Returns the lanes that rule-based algorithms of the same placement generate. Algorithms that do
// not split the backward are included only if a whole B takes less than I and W.
std::vector<std::vector<Lane>> KnownLanes(const Problem& problem, ScheduleParams params,
                                          std::vector<Algorithm> split,
                                          const std::vector<Algorithm>& whole) {
  params.memory_limit.reset();
  const bool splitting_costs = std::ranges::any_of(
      problem.costs.stages, [](const StageCosts& s) { return s.saved_by_whole_backward > 0; });
  if (splitting_costs) split.insert(split.end(), whole.begin(), whole.end());
  std::vector<std::vector<Lane>> known;
  for (const Algorithm& algorithm : split) known.push_back(algorithm.generate(params).lanes);
  return known;
}

}  // namespace

std::vector<Lane> SearchLinear(const Problem& problem) {
  return SearchLanes(problem, [](const Problem& part) {
    return Seeds{TurnsWithin(part, 1), TurnsWithin(part, 2)};
  });
}

std::vector<std::vector<Lane>> KnownOnLinear(const Problem& problem, const ScheduleParams& params) {
  return KnownLanes(problem, params, {ZbH1(), ZbH2()}, {OneFOneB(), GPipe(), Naive()});
}

std::vector<Lane> SearchVee(const Problem& problem, const std::vector<std::vector<Lane>>& known) {
  const std::vector<PeriodPattern> blocks = BestUniformBlocks(problem, kUniformBlocks);
  return SearchLanes(problem, [&](const Problem& part) {
    Seeds seeds;
    for (const PeriodPattern& block : blocks) seeds.push_back(LanesOf(part, block));
    for (const auto make : {ZbvSeeds, VHalfSeeds, VMinSeeds}) {
      seeds.push_back(make(part).front());
    }
    if (part.indices == problem.indices) {
      // The first three split every backward, as the search does.
      seeds.insert(seeds.end(), known.begin(), known.begin() + 3);
    }
    return seeds;
  });
}

std::vector<std::vector<Lane>> KnownOnVee(const Problem& problem, const ScheduleParams& params) {
  std::vector<std::vector<Lane>> known =
      KnownLanes(problem, params, {Zbv(), VHalf(), VMin()}, {V1f1b()});
  known.push_back(ZbvLanes(params.ranks, params.microbatches));
  return known;
}

namespace {

Schedule GenerateZbAuto(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {schedule.placement,
                           costs,
                           params.microbatches,
                           1,
                           true,
                           Limit(params, schedule.placement, costs),
                           params.objective};
  schedule.lanes = BestWithinLimit(problem, SearchLinear, KnownOnLinear(problem, params));
  return schedule;
}

Schedule GenerateVAuto(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {schedule.placement,
                           costs,
                           params.microbatches,
                           1,
                           true,
                           Limit(params, schedule.placement, costs),
                           params.objective};
  const std::vector<std::vector<Lane>> known = KnownOnVee(problem, params);
  schedule.lanes = BestWithinLimit(
      problem, [&](const Problem& within) { return SearchVee(within, known); }, known);
  return schedule;
}

}  // namespace

Algorithm ZbAuto() {
  Algorithm algorithm;
  algorithm.name = "zb-auto";
  algorithm.aliases = {"zero-bubble-heuristic", "zbb", "zb"};
  algorithm.summary = "the shortest split-backward schedule found for the costs and the limit";
  algorithm.when =
      "For stages that differ or transfers that take time, with one stage per rank: searches for "
      "your costs and your memory limit.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.constraint = "memory limit >= 1 microbatch";
  algorithm.makespan = "best found";
  algorithm.memory = "the limit (default 2p)";
  algorithm.source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3";
  algorithm.supported = {.memory_limit = true, .objective = true};
  algorithm.check = [](const ScheduleParams& params) {
    return CheckMemoryLimit(params, Placement::Linear(params.ranks));
  };
  algorithm.generate = GenerateZbAuto;
  algorithm.closed_form = [](const ScheduleParams&) { return ClosedForm{}; };
  return algorithm;
}

Algorithm VAuto() {
  Algorithm algorithm;
  algorithm.name = "v-auto";
  algorithm.aliases = {"v-auto-schedule"};
  algorithm.summary = "the shortest schedule on a vee found for the costs and the limit";
  algorithm.when =
      "For your own memory limit, uneven stages or slow links: searches for the shortest schedule "
      "on a vee that stays within the limit.";
  algorithm.placement = PlacementForm::kVee;
  algorithm.constraint = "memory limit >= 1 microbatch";
  algorithm.makespan = "best found";
  algorithm.memory = "the limit (default 2p)";
  algorithm.source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024";
  algorithm.supported = {.min_chunks = 2,
                         .max_chunks = 2,
                         .default_chunks = 2,
                         .memory_limit = true,
                         .objective = true};
  algorithm.check = [](const ScheduleParams& params) {
    return CheckMemoryLimit(params, Placement::Vee(params.ranks));
  };
  algorithm.generate = GenerateVAuto;
  algorithm.closed_form = [](const ScheduleParams&) { return ClosedForm{}; };
  return algorithm;
}

}  // namespace penstock
