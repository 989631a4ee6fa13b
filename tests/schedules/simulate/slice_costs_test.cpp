// Costs that differ by slice: later slices of a sequence take longer, and allocate gradients of
// earlier ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "simulate/memory/memory_over_time.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock {
namespace {

TEST(SliceCosts, MatchAHandComputedExample) {
  Schedule schedule = ParseCsv("0F0,0F1,0B1,0B0\n").value();
  schedule.slices = 2;
  schedule.microbatches = 1;
  Costs costs = Costs::Uniform(schedule.placement, 2, 1, 1, 1);
  costs.by_slice = {{.forward = 1, .backward_input = 2, .backward_weight = 3, .activation = 3},
                    {.forward = 10, .backward_input = 20, .backward_weight = 30, .activation = 3}};
  costs.by_slice[0].gradients_of_others = -4;
  costs.by_slice[1].gradients_of_others = 4;
  const auto [result, timeline] = SimulateWithTimes(schedule, costs);
  EXPECT_EQ(result.makespan, 66);
  EXPECT_EQ(result.peak_memory, 7);  // after B1: 3 of slice 0 and 4 of gradients
  const MemoryCurve curve = MemoryOverTime(schedule, timeline, costs, 0);
  std::vector<double> amounts;
  for (const MemoryPoint& point : curve) amounts.push_back(point.amount);
  EXPECT_EQ(amounts, (std::vector<double>{3, 6, 7, 0}));
}

// The I of a first stage frees nothing, and its W reads a gradient that was allocated for the I.
TEST(SliceCosts, BackwardInputMayAllocateMoreThanItFrees) {
  const Schedule schedule = ParseCsv("0F0,0F1,0I0,0W0,0I1,0W1\n").value();
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.stages.front().activation_after_i = 1.5;
  EXPECT_EQ(Simulate(schedule, costs)->peak_memory, 2.5);
}

// Costs are whole numbers, so that sums are exact. Over the slices of a stage the gradients add up
// to 0.
Costs RandomCosts(const Schedule& schedule, std::mt19937& random) {
  const auto number = [&](unsigned most) { return static_cast<double>(1 + random() % most); };
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1, number(2));
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const double gradient = number(9);
    for (int slice = 0; slice < schedule.slices; ++slice) {
      StageCosts& of = costs.by_slice.emplace_back();
      of = {number(5), number(5), number(5), number(20), 0};
      of.activation_after_i = number(static_cast<unsigned>(of.activation));
      of.gradients_of_others = slice < schedule.slices - 1 ? -gradient : gradient * slice;
    }
  }
  return costs;
}

TEST(SliceCosts, SimulationAndMemoryCurveAgree) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    ScheduleParams params = {.ranks = 1 + static_cast<int>(random() % 5),
                             .microbatches = 1 + static_cast<int>(random() % 6),
                             .slices = 1 + static_cast<int>(random() % 5)};
    params.split = random() % 2 == 0;
    const Schedule schedule = Generate("seq1f1b", params).value();
    const Costs costs = RandomCosts(schedule, random);
    const auto [result, timeline] = SimulateWithTimes(schedule, costs);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const std::size_t r = rank;
      const MemoryCurve curve = MemoryOverTime(schedule, timeline, costs, rank);
      const double peak =
          std::max_element(curve.begin(), curve.end(), [](const auto& a, const auto& b) {
            return a.amount < b.amount;
          })->amount;
      EXPECT_EQ(result.ranks[r].peak_memory, peak);
      EXPECT_EQ(curve.back().amount, 0);
      double busy = 0;
      for (const Action& action : schedule.lanes[r]) busy += costs.Duration(action.first);
      EXPECT_EQ(result.ranks[r].busy, busy);
    }
  }
}

}  // namespace
}  // namespace penstock
