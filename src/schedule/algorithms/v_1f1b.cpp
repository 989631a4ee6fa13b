// V-1F1B: a vee with the backward whole, in two thirds of 1F1B's memory and with less bubble.
//
//   rank 0 of 2, m = 2   0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
//   rank 1               1F0 2F0 1F1 2B0 2F1 1B0 2B1 1B1
//
// One microbatch's block, in slots, is repeated every 6 slots; a whole B takes two. Blocks with
// several paces up and down the ranks are tried, those that fit a memory of floor(2p/3) + 1; the
// best ones are squeezed to and fro with the real costs.
//
// Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3 (1F1B-V).
#include <optional>

#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/period_pattern.h"
#include "schedule/algorithms/repeated_slots.h"
#include "schedule/algorithms/search.h"

namespace penstock {
namespace {

Schedule GenerateV1f1b(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs = CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement);
  const int two_thirds = 2 * params.ranks / 3;
  const double limit = two_thirds + 1;
  const Problem problem = {schedule.placement, costs, params.microbatches, 1, false, limit};
  schedule.lanes = SearchLanes(problem, [](const Problem&) { return Seeds(); });
  return schedule;
}

}  // namespace

Algorithm V1f1b() {
  Algorithm algorithm;
  algorithm.name = "v-1f1b";
  algorithm.aliases = {"1f1b-v"};
  algorithm.summary = "a vee with the backward whole, two thirds of 1f1b's memory";
  algorithm.when =
      "Where memory is short and the backward cannot be split: two thirds of 1f1b's activations.";
  algorithm.placement = PlacementForm::kVee;
  algorithm.makespan = "simulated";
  algorithm.memory = "min(m, floor(2p/3)+1)";
  algorithm.source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024";
  algorithm.knobs = {.min_chunks = 2, .max_chunks = 2, .default_chunks = 2};
  algorithm.generate = GenerateV1f1b;
  algorithm.closed_form = [](const ScheduleParams& params) {
    return PeakAtEqualTimes(params, 2 * params.ranks / 3 + 1);
  };
  return algorithm;
}

}  // namespace penstock
