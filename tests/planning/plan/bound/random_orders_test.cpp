// Bounds against schedules with random orders and costs: no bound is above any of them.
#include <gtest/gtest.h>

#include <random>

#include "plan/bound/makespan_bound.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/problem/price_lanes.h"
#include "tests/schedules/schedule/draw.h"

namespace penstock {
namespace {

using testing::Draw;

constexpr double kRounding = 1e-9;

Placement DrawPlacement(std::mt19937& rng) {
  const int ranks = Draw(rng, 1, 5), chunks = Draw(rng, 1, 4);
  return Draw(rng, 0, 1) == 0 ? Placement::Looped(ranks, chunks) : Placement::Zigzag(ranks, chunks);
}

// Equal stages half of the time, which some bounds require.
Costs DrawCosts(const Placement& placement, std::mt19937& rng) {
  const bool keeps_less = Draw(rng, 0, 3) == 0;
  Costs costs = Costs::Uniform(placement, 1, Draw(rng, 1, 4), Draw(rng, 1, 4), Draw(rng, 0, 4),
                               0.25 * Draw(rng, 0, 4), keeps_less ? 0.25 * Draw(rng, 0, 3) : 1);
  if (Draw(rng, 0, 1) == 0) return costs;
  for (StageCosts& stage : costs.stages) {
    stage.forward *= Draw(rng, 1, 3);
    stage.backward_input *= Draw(rng, 1, 3);
    const int memory = Draw(rng, 1, 3);
    stage.activation *= memory;
    stage.activation_after_i *= memory;
  }
  return costs;
}

// Backward first, as good schedules do, with some preferences drawn.
ListRule DrawRule(const Placement& placement, int indices, std::mt19937& rng) {
  ListRule rule = ListRule::BackwardFirst(placement, indices);
  for (Preference* preference : {&rule.forward, &rule.backward, &rule.weight}) {
    if (Draw(rng, 0, 2) != 0) continue;
    for (double& offset : preference->offset) offset = Draw(rng, 0, 3 * indices);
    preference->group = Draw(rng, 1, 3);
    preference->period = Draw(rng, 1, 4);
  }
  rule.window = Draw(rng, 1, indices);
  rule.patience = 0.25 * Draw(rng, 0, 4);
  return rule;
}

TEST(RandomOrdersTest, NoScheduleIsBelowItsBounds) {
  std::mt19937 rng(1);
  for (int round = 0; round < 3000; ++round) {
    const Placement placement = DrawPlacement(rng);
    Costs costs = DrawCosts(placement, rng);
    costs.overlap = {OverlapRule::Kind::kSum};
    const int indices = Draw(rng, 1, 12);
    const double most = LeastMemory(placement, costs) * Draw(rng, 2, 2 * indices) / 2.0;
    const bool split = Draw(rng, 0, 4) != 0;
    ListScheduler scheduler({placement, costs, indices, 1, split, most});
    const double makespan = scheduler.Run(DrawRule(placement, indices, rng));
    const std::vector<Lane> lanes = scheduler.TakeLanes();
    const Problem problem = {placement, costs, indices, 1, split};
    const LanePrice price = PriceLanes(problem, lanes);
    ASSERT_NEAR(price.makespan, makespan, makespan * kRounding);
    const double limit = price.peak_memory;
    const double bound = LengthBound(placement, costs, indices, limit, Objective::kMakespan, split);
    const double span_bound =
        LengthBound(placement, costs, indices, limit, Objective::kSpan, split);
    const std::string at =
        fmt::format("round {} ranks {} stages {} microbatches {} memory {}", round,
                    placement.ranks(), placement.stages(), indices, limit);
    ASSERT_LE(bound, price.makespan * (1 + kRounding)) << at;
    ASSERT_LE(span_bound, price.longest_span * (1 + kRounding)) << at;
  }
}

}  // namespace
}  // namespace penstock
