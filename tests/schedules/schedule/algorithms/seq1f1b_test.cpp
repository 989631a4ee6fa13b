// Slices of the sequence on a vee, compared with the same slices on a linear placement.
#include <gtest/gtest.h>

#include <random>

#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

constexpr double kRounding = 1 + 1e-9;

ScheduleParams RandomSlices(std::mt19937& random) {
  ScheduleParams params = Sized(Draw(random, 1, 16), Draw(random, 1, 24));
  params.slices = Draw(random, 1, 8);
  params.split = Draw(random, 0, 1) == 1;
  return params;
}

void ExpectVeeNoSlowerThanLinear(ScheduleParams params) {
  const Figures linear = FiguresOf("seq1f1b", params);
  params.chunks = 2;
  const Figures vee = FiguresOf("seq1f1b", params);
  const std::string where =
      fmt::format("p={} m={} k={} split={} I={} W={}", params.ranks, params.microbatches,
                  params.slices, params.split, params.backward_input, params.backward_weight);
  EXPECT_LE(vee.makespan, linear.makespan * kRounding) << where;
  EXPECT_LE(vee.peak_memory, linear.peak_memory * kRounding) << where;
}

TEST(Seq1f1b, VeeIsNoSlowerThanLinearInTheSameMemory) {
  std::mt19937 random(29);
  ScheduleParams params = {.ranks = 8, .microbatches = 32, .slices = 4};
  ExpectVeeNoSlowerThanLinear(params);
  for (int i = 0; i < Cases(150); ++i) {
    params = RandomSlices(random);
    ExpectVeeNoSlowerThanLinear(params);
    params.backward_input = 0.1 * Draw(random, 4, 17);
    params.backward_weight = 0.1 * Draw(random, 3, 18);
    ExpectVeeNoSlowerThanLinear(params);
  }
}

// W is long and transfers take time; at a third of 1f1b's memory.
TEST(Seq1f1b, SplitVeeBeats1f1bWithUnequalCosts) {
  ScheduleParams params = {
      .ranks = 8, .microbatches = 32, .backward_input = 0.6, .backward_weight = 1.7, .comm = 0.3};
  const Figures one_f_one_b = FiguresOf("1f1b", params);
  params.chunks = 2;
  params.slices = 4;
  params.split = true;
  const Figures slices = FiguresOf("seq1f1b", params);
  EXPECT_LT(slices.makespan, one_f_one_b.makespan);
  EXPECT_LT(slices.peak_memory, one_f_one_b.peak_memory);
}

}  // namespace
}  // namespace penstock::testing
