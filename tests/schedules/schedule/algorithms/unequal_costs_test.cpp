// Rule-based schedules with other F, I, W and latency than the rule assumes.
#include <gtest/gtest.h>

#include <random>

#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

constexpr double kSlack = 1 + 1e-9;

// Zero Bubble Pipeline Parallelism (arXiv 2401.10241), tables 4 and 5.
struct Measured {
  int ranks, microbatches;
  double forward, backward_input, backward_weight, comm;  // ms
  double zb_h2;                                           // bubble
};

constexpr Measured kPublished[] = {
    {8, 24, 18.522, 18.086, 9.337, 0.601, 0.1083},
    {8, 32, 18.513, 18.086, 9.331, 0.626, 0.0837},
    {8, 64, 18.546, 18.097, 9.321, 0.762, 0.0444},
    {8, 24, 29.718, 29.444, 19.927, 0.527, 0.0698},
    {8, 32, 29.802, 29.428, 19.530, 0.577, 0.0559},
    {8, 64, 29.935, 29.621, 19.388, 0.535, 0.0294},
    {16, 48, 11.347, 11.248, 8.132, 0.377, 0.0672},
    {16, 64, 11.307, 11.254, 8.101, 0.379, 0.0516},
    {16, 128, 11.325, 11.308, 8.109, 0.378, 0.0266},
    {32, 96, 10.419, 10.207, 7.715, 0.408, 0.0641},
    {32, 128, 10.408, 10.204, 7.703, 0.408, 0.0490},
    {32, 256, 10.402, 10.248, 7.698, 0.460, 0.0257},
};

TEST(UnequalCosts, ZbH2HasThePublishedBubble) {
  for (const Measured& row : kPublished) {
    ScheduleParams params = {.ranks = row.ranks,
                             .microbatches = row.microbatches,
                             .forward = row.forward,
                             .backward_input = row.backward_input,
                             .backward_weight = row.backward_weight,
                             .comm = row.comm};
    EXPECT_NEAR(FiguresOf("zb-h2", params).span_bubble, row.zb_h2, 0.00005)
        << "p=" << row.ranks << " m=" << row.microbatches << " F=" << row.forward;
  }
}

// Returns the figures, with the costs in `params`, of the order that the algorithm generates for
// F = I = W.
Figures WithOrderForEqualTimes(const Algorithm& algorithm, const ScheduleParams& params) {
  ScheduleParams equal = params;
  equal.forward = equal.backward_input = equal.backward_weight = 1;
  equal.comm = 0;
  if (equal.costs) {
    equal.costs->comm = 0;
    for (StageCosts& stage : equal.costs->stages) {
      stage.forward = stage.backward_input = stage.backward_weight = 1;
      stage.saved_by_whole_backward = 0;
    }
  }
  const auto schedule = Generate(algorithm.name, equal);
  if (!schedule) return {};
  const auto result = Simulate(*schedule, CostsFor(*schedule, params));
  return {result->makespan, result->peak_memory, result->span_bubble};
}

void DrawStageCosts(const Algorithm& algorithm, ScheduleParams& params, std::mt19937& random) {
  const auto schedule = Generate(algorithm.name, params);
  if (!schedule) return;
  Costs costs = CostsFor(*schedule, params);
  for (StageCosts& stage : costs.stages) {
    stage.forward *= 0.1 * Draw(random, 5, 15);
    stage.backward_input *= 0.1 * Draw(random, 5, 15);
    stage.backward_weight *= 0.1 * Draw(random, 2, 15);
  }
  costs.ScaleTimes(10);  // in another unit, what a whole B saves is more than 1
  for (StageCosts& stage : costs.stages) {
    stage.saved_by_whole_backward =
        0.1 * Draw(random, 0, 8) * (stage.backward_input + stage.backward_weight);
  }
  params.costs = costs;
}

// Covers all algorithms; the order of some depends on the costs.
TEST(UnequalCosts, NoScheduleIsSlowerThanItsOrderForEqualTimes) {
  std::mt19937 random(23);
  for (const Algorithm& algorithm : Catalog()) {
    for (int i = 0; i < Cases(20); ++i) {
      ScheduleParams params = DrawParams(algorithm, random);
      params.forward = 1;
      params.backward_input = 0.1 * Draw(random, 4, 17);
      params.backward_weight = 0.1 * Draw(random, 3, 18);
      params.comm = Draw(random, 0, 1) == 0 ? 0 : 0.1 * Draw(random, 1, 6);
      if (!Generate(algorithm.name, params)) continue;
      if (i % 2 == 0) DrawStageCosts(algorithm, params, random);
      const Figures figures = FiguresOf(algorithm.name, params);
      const Figures equal = WithOrderForEqualTimes(algorithm, params);
      EXPECT_LE(figures.makespan, equal.makespan * kSlack) << fmt::format(
          "{} p={} v={} m={} slices={} waves={} split={} I={} W={} comm={}", algorithm.name,
          params.ranks, params.chunks, params.microbatches, params.slices, params.waves,
          params.split, params.backward_input, params.backward_weight, params.comm);
    }
  }
}

// W is long and transfers take time: greedy orders stall.
ScheduleParams LongWeights() {
  return {
      .ranks = 8, .microbatches = 32, .backward_input = 0.6, .backward_weight = 1.7, .comm = 0.3};
}

TEST(UnequalCosts, SchedulesThatFollowTheCostsBeat1f1bInItsMemory) {
  ScheduleParams params = LongWeights();
  const Figures one_f_one_b = FiguresOf("1f1b", params);
  const auto expect_faster = [&](std::string_view name) {
    const Figures figures = FiguresOf(name, params);
    EXPECT_LT(figures.makespan, one_f_one_b.makespan) << name;
    EXPECT_LE(figures.peak_memory, one_f_one_b.peak_memory * kSlack) << name;
  };
  for (const std::string_view name : {"zbv", "v-half", "v-min", "hanayo"}) expect_faster(name);
  params.waves = 2;
  expect_faster("hanayo");
  params.waves = 0;
  params.split = true;
  expect_faster("chimera");
}

}  // namespace
}  // namespace penstock::testing
