// Every schedule with a memory limit stays within it for any stage costs, or the refusal names the
// memory that it needs.
#include <gtest/gtest.h>

#include <random>

#include "schedule/search/problem/lower_bound.h"
#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

// Draws times, latency and activations for the stages of a schedule of these sizes.
Costs RandomCosts(int stages, std::mt19937& random) {
  Costs costs;
  costs.comm = Draw(random, 0, 1) == 0 ? 0 : 0.1 * Draw(random, 1, 8);
  for (int stage = 0; stage < stages; ++stage) {
    StageCosts cost = {0.2 + 0.1 * Draw(random, 0, 14), 0.1 * Draw(random, 0, 14),
                       0.1 * Draw(random, 0, 14), 0.5 + 0.25 * Draw(random, 0, 10)};
    cost.activation_after_i = cost.activation * 0.25 * Draw(random, 0, 4);
    costs.stages.push_back(cost);
  }
  return costs;
}

void ExpectRefused(const Algorithm& algorithm, const ScheduleParams& params) {
  EXPECT_TRUE(
      Refused(Generate(algorithm.name, params), "memory_limit ", ErrorCode::kInvalidArgument))
      << algorithm.name << ": limit " << *params.memory_limit;
}

TEST(MemoryLimit, IsKeptWithAnyStageCosts) {
  std::mt19937 random(17);
  int searched = 0;
  for (const Algorithm& algorithm : Catalog()) {
    if (!algorithm.supported.memory_limit) continue;
    ++searched;
    for (int i = 0; i < Cases(30); ++i) {
      ScheduleParams params = {.ranks = Draw(random, 1, 6), .microbatches = Draw(random, 1, 14)};
      if (algorithm.supported.waves) params.waves = Draw(random, 1, 3);
      const auto plain = ValueOf(Generate(algorithm.name, params));
      params.costs = RandomCosts(plain.stages(), random);
      const double least = LeastMemory(plain.placement, *params.costs);

      params.memory_limit = least * (1 + 0.01 * Draw(random, 0, 400));
      const Figures figures = FiguresOf(algorithm.name, params);
      EXPECT_LE(figures.peak_memory, *params.memory_limit * (1 + 1e-9))
          << algorithm.name << " p=" << params.ranks << " m=" << params.microbatches
          << " waves=" << params.waves;
      const Problem problem = {plain.placement,     *params.costs, params.microbatches, 1, true,
                               *params.memory_limit};
      EXPECT_GE(figures.makespan, LowerBound(problem) * (1 - 1e-9)) << algorithm.name;

      params.memory_limit = least * 0.01 * Draw(random, 0, 99);
      ExpectRefused(algorithm, params);
    }
  }
  EXPECT_GE(searched, 3);
}

// Messages about a limit use the unit in which it was given.
TEST(MemoryLimit, RefusalsAreInTheUnitOfTheUser) {
  ScheduleParams params = Sized(2, 4);
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Costs costs;
  costs.stages.assign(4, {1, 1, 1, 2 * kGiB, 2 * kGiB});
  params.costs = costs;
  params.memory_limit = 3 * kGiB;
  params.memory_unit = {"GiB", 1 / kGiB};
  for (const std::string_view name : {"hanayo", "v-auto"}) {
    const auto refused = Generate(name, params);
    ASSERT_TRUE(Refused(refused, "3GiB")) << name;
    EXPECT_NE(refused.error().line().find("4GiB"), std::string::npos) << refused.error().line();
  }
}

}  // namespace
}  // namespace penstock::testing
