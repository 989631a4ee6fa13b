// V-1F1B: a vee with whole backwards, with two thirds of 1F1B's memory and less bubble.
//
//   rank 0 of 2, m = 2   0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1
//   rank 1               1F0 2F0 1F1 2B0 2F1 1B0 2B1 1B1
//
// The block of one microbatch, in slots, repeats every 6 slots; a whole B takes two. The forwards
// go down and up the ranks without a pause, and then the backwards, with a pause of 3 slots after
// every third rank. On rank r
//   F0 at r    F1 at 2p-1-r    B1 at b(r)    B0 at b(2p-1-r)
//   b(x) = 2p + d + 2x + 3 floor((x + (2p+1) mod 3) / 3), d = 3 if 3 divides p else 0
// Its peak memory is floor(2p/3) + 1. This block and others that fit the memory are squeezed
// alternately from both ends with the real costs.
//
// Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3 (1F1B-V).
#include "schedule/algorithms/algorithms.h"
#include "schedule/search/patterns/period_pattern.h"
#include "schedule/search/search.h"

namespace penstock {
namespace {

constexpr int kBlockSlots = 6;  // of one microbatch on one rank

int Memory(int ranks) { return 2 * ranks / 3 + 1; }

PeriodPattern OneBlock(int ranks) {
  const int stages = 2 * ranks;
  const int pause = ranks % 3 == 0 ? 3 : 0;
  const int phase = (2 * ranks + 1) % 3;
  PeriodPattern pattern(stages);
  pattern.period = kBlockSlots;
  for (int i = 0; i < stages; ++i) {
    pattern.forward[i] = i;
    const int pauses = (i + phase) / 3;
    pattern.backward[stages - 1 - i] = stages + pause + 2 * i + 3 * pauses;
  }
  return pattern;
}

Schedule GenerateV1f1b(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {.placement = schedule.placement,
                           .costs = costs,
                           .indices = params.microbatches,
                           .split = false,
                           .objective = params.objective};
  const PeriodPattern block = OneBlock(params.ranks);
  schedule.lanes = SearchNear([&](const Problem& part) { return Seeds{LanesOf(part, block)}; },
                              problem, Memory(params.ranks));
  return schedule;
}

}  // namespace

Algorithm V1f1b() {
  Algorithm algorithm;
  algorithm.name = "v-1f1b";
  algorithm.aliases = {"1f1b-v"};
  algorithm.summary = "a vee with whole backwards: two thirds of 1f1b's memory";
  algorithm.when =
      "For little memory and backwards that cannot be split: two thirds of 1f1b's activations.";
  algorithm.placement = PlacementForm::kVee;
  algorithm.makespan = "simulated";
  algorithm.memory = "min(m, floor(2p/3)+1)";
  algorithm.source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024";
  algorithm.supported = {.min_chunks = 2, .max_chunks = 2, .default_chunks = 2, .objective = true};
  algorithm.generate = GenerateV1f1b;
  algorithm.closed_form = [](const ScheduleParams& params) {
    return PeakAtEqualTimes(params, Memory(params.ranks));
  };
  return algorithm;
}

}  // namespace penstock
