// V-Half and V-Min: a vee that keeps the activations of a microbatch alive for a shorter time on
// each rank, for half and a third of 1F1B's memory.
//
// The block of one microbatch, in slots, repeats every 6 slots; on rank r
//   v-min    F0 at r    F1 at 2p-1-r   I1 at 2p+d+r       I0 at 4p+d-1-r    d = 2 if 3 divides p
//   v-half   F0 at 2r   F1 at 3p-2-r   I1 at 3p+d-1+2r    I0 at 6p+d-2-r    d = 3 if p is even
// and W takes the first free slot after its I. Only the order matters: the lanes are then squeezed
// alternately from both ends with the real costs, within the memory of the block.
//
//   v-min, rank 0 of 4   0F0 0F1 0F2 0F3 . . . 7F0 7I0 7W0 7F1 7I1 7W1 7F2 0I0 0W0 7I2 ...
//
// Peak memory floor(p/2) + 1 and floor((p+1)/3) + 1.
// Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 3 and appendix.
#include "schedule/algorithms/v_schedules.h"

#include <array>
#include <cmath>

#include "schedule/algorithms/algorithms.h"
#include "schedule/search/patterns/period_pattern.h"

namespace penstock {
namespace {

constexpr int kSlots = 6;  // of one microbatch on one rank

// Slots of microbatch 0 on one rank.
struct Block {
  int forward[2];   // of chunks 0 and 1
  int backward[2];  // I
};

Block MinBlock(int ranks, int rank) {
  const int pause = ranks % 3 == 0 ? 2 : 0;
  return {{rank, 2 * ranks - 1 - rank}, {4 * ranks + pause - 1 - rank, 2 * ranks + pause + rank}};
}

Block HalfBlock(int ranks, int rank) {
  const int pause = ranks % 2 == 0 ? 3 : 0;
  return {{2 * rank, 3 * ranks - 2 - rank},
          {6 * ranks + pause - 2 - rank, 3 * ranks + pause - 1 + 2 * rank}};
}

// The first slots after I that are free in every period, in the order of the I.
std::array<int, 2> WeightSlots(const Block& block) {
  std::array<bool, kSlots> taken = {};
  for (const int chunk : {0, 1}) {
    taken[block.forward[chunk] % kSlots] = true;
    taken[block.backward[chunk] % kSlots] = true;
  }
  std::array<int, 2> slots = {};
  for (const int chunk : {1, 0}) {  // chunk 1's I comes first
    int& slot = slots[chunk];
    slot = block.backward[chunk] + 1;
    while (taken[slot % kSlots]) ++slot;
    taken[slot % kSlots] = true;
  }
  return slots;
}

Seeds SeedsOf(const Problem& problem, Block (*block_of)(int, int)) {
  const int p = problem.placement.ranks();
  PeriodPattern pattern(2 * p);
  pattern.period = kSlots;
  for (int rank = 0; rank < p; ++rank) {
    const Block block = block_of(p, rank);
    const std::array<int, 2> weights = WeightSlots(block);
    for (const int chunk : {0, 1}) {
      const std::size_t stage = chunk == 0 ? rank : 2 * p - 1 - rank;
      pattern.forward[stage] = block.forward[chunk];
      pattern.backward[stage] = block.backward[chunk];
      pattern.weight[stage] = weights[chunk];
    }
  }
  return Seeds{LanesOf(problem, pattern)};
}

Schedule GenerateFrom(const ScheduleParams& params, const SeedMaker& seeds, int limit) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {.placement = schedule.placement,
                           .costs = costs,
                           .indices = params.microbatches,
                           .objective = params.objective};
  schedule.lanes = SearchNear(seeds, problem, limit);
  return schedule;
}

Algorithm VeeAlgorithm() {
  Algorithm algorithm;
  algorithm.placement = PlacementForm::kVee;
  algorithm.makespan = "simulated";
  algorithm.source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024";
  algorithm.supported = {.min_chunks = 2, .max_chunks = 2, .default_chunks = 2, .objective = true};
  return algorithm;
}

}  // namespace

Seeds VHalfSeeds(const Problem& problem) { return SeedsOf(problem, HalfBlock); }
Seeds VMinSeeds(const Problem& problem) { return SeedsOf(problem, MinBlock); }
int VHalfMemory(int ranks) { return ranks / 2 + 1; }
int VMinMemory(int ranks) { return (ranks + 1) / 3 + 1; }

Algorithm VHalf() {
  Algorithm algorithm = VeeAlgorithm();
  algorithm.name = "v-half";
  algorithm.summary = "a vee with half of 1f1b's memory";
  algorithm.when = "For little memory: half of 1f1b's activations for a few percent of the time.";
  algorithm.memory = "min(m, floor(p/2)+1)";
  algorithm.generate = [](const ScheduleParams& params) {
    return GenerateFrom(params, VHalfSeeds, VHalfMemory(params.ranks));
  };
  algorithm.closed_form = [](const ScheduleParams& params) {
    return PeakAtEqualTimes(params, VHalfMemory(params.ranks));
  };
  return algorithm;
}

Algorithm VMin() {
  Algorithm algorithm = VeeAlgorithm();
  algorithm.name = "v-min";
  algorithm.summary = "a vee with a third of 1f1b's memory";
  algorithm.when =
      "For very little memory: a third of 1f1b's activations, the least of all that keep the "
      "ranks busy. Uneven costs slow it down more than v-half.";
  algorithm.memory = "min(m, floor((p+1)/3)+1)";
  algorithm.generate = [](const ScheduleParams& params) {
    return GenerateFrom(params, VMinSeeds, VMinMemory(params.ranks));
  };
  algorithm.closed_form = [](const ScheduleParams& params) {
    return PeakAtEqualTimes(params, VMinMemory(params.ranks));
  };
  return algorithm;
}

}  // namespace penstock
