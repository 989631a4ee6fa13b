// Hanayo: the model runs down and up the ranks in waves; each wave is a vee, and more waves mean
// shorter stages and a smaller bubble, for more messages.
//
//   two waves over 2 ranks: stages 0 1 2 3 4 5 6 7 on ranks 0 1 1 0 0 1 1 0
//   rank 0, m = 2   0F0 0F1 3F0 4F0 3F1 4F1 7F0 7B0 7F1 7B1 4B0 3B0 4B1 3B1 0B0 0B1
//
// List scheduling with B whole: a ready B first (lowest microbatch, deepest stage), else F by group
// of p microbatches, then chunk, then microbatch, or, which is shorter for few microbatches, by
// chunk from the deepest; p microbatches in flight, or --memory-limit up to 2p of them. Makespan
// about 3m + 2(p-1)/w at m = p for F = I = W = 1.
// Liu et al., Hanayo: Harnessing Wave-like Pipeline Parallelism, SC 2023, section 3.
#include <cmath>

#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/list_scheduler.h"

namespace penstock {
namespace {

Status Check(const ScheduleParams& params) {
  if (params.chunks % 2 != 0) {
    return InvalidArgument("--chunks {}: a wave takes two, so an even number", params.chunks);
  }
  if (params.waves != 0 && params.chunks != 2 * std::int64_t{params.waves}) {
    return InvalidArgument("--waves {} are {} chunks, not the {} of --chunks", params.waves,
                           2 * std::int64_t{params.waves}, params.chunks);
  }
  const double most = 2.0 * params.ranks;
  if (params.memory_limit && !(*params.memory_limit >= 1 && *params.memory_limit <= most)) {
    return InvalidArgument("--memory-limit {}: 1 to 2p microbatches, {}", *params.memory_limit,
                           most);
  }
  return {};
}

// By group of p microbatches, then chunk up.
ListRule ByGroup(const ScheduleParams& params, const Placement& placement) {
  ListRule rule = ListRule::BackwardFirst(placement, params.microbatches);
  const double groups = std::ceil(static_cast<double>(params.microbatches) / params.ranks);
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const int chunk = stage / params.ranks;
    rule.forward.offset[s] = chunk;
    // Backwards before all forwards, by microbatch; of equal ones the deepest.
    rule.backward.offset[s] = -(groups + 1) * params.chunks - 2.0 * params.microbatches -
                              static_cast<double>(stage) / placement.stages();
  }
  rule.forward.period = params.chunks;
  rule.forward.group = params.ranks;
  return rule;
}

Schedule GenerateHanayo(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Zigzag(params.ranks, params.chunks), params);
  const Costs costs = CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement);
  const double alive = std::floor(params.memory_limit.value_or(params.ranks));
  ListScheduler scheduler({schedule.placement, costs, params.microbatches, 1, false, alive});
  double shortest = kNever;
  for (ListRule rule : {ByGroup(params, schedule.placement),
                        ListRule::BackwardFirst(schedule.placement, params.microbatches)}) {
    rule.window = static_cast<int>(alive);
    const double makespan = scheduler.Run(rule, shortest);
    if (makespan >= shortest) continue;
    shortest = makespan;
    schedule.lanes = scheduler.lanes();
  }
  return schedule;
}

}  // namespace

Algorithm Hanayo() {
  Algorithm algorithm;
  algorithm.name = "hanayo";
  algorithm.aliases = {"wave"};
  algorithm.summary = "waves down and up the ranks, backward whole";
  algorithm.when =
      "Where the backward cannot be split and m is near p: w waves cut the bubble by about w, "
      "for 2w times the messages. At larger m compare it with 1f1b first.";
  algorithm.placement = PlacementForm::kZigzag;
  algorithm.constraint = "--waves w, 2w chunks; memory limit 1 to 2p";
  algorithm.makespan = "about 3m+2(p-1)/w at m = p";
  algorithm.memory = "min(m, p), or the limit";
  algorithm.source = "Liu et al., Hanayo, SC 2023, section 3";
  algorithm.knobs = {.min_chunks = 2,
                     .max_chunks = kMaxStages,
                     .default_chunks = 2,
                     .waves = true,
                     .memory_limit = true};
  algorithm.check = Check;
  algorithm.generate = GenerateHanayo;
  algorithm.closed_form = [](const ScheduleParams& params) {
    return PeakAtEqualTimes(params, std::floor(params.memory_limit.value_or(params.ranks)));
  };
  return algorithm;
}

}  // namespace penstock
