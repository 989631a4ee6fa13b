// Searches minimize what they are asked to: the makespan, or the longest span of a rank.
#include <gtest/gtest.h>

#include <random>

#include "schedule/search/problem/lower_bound.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/text/cost_text.h"
#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/figures.h"

namespace penstock::testing {
namespace {

constexpr double kAbout = 1 + 1e-9;

ScheduleParams DrawSearch(std::mt19937& random) {
  ScheduleParams params = {.ranks = Draw(random, 1, 6),
                           .microbatches = Draw(random, 1, 16),
                           .forward = 0.5 + 0.1 * Draw(random, 0, 10),
                           .backward_input = 0.1 * Draw(random, 0, 15),
                           .backward_weight = 0.1 * Draw(random, 0, 15),
                           .kept_for_weight = 0.25 * Draw(random, 0, 4),
                           .comm = 0.1 * Draw(random, 0, 3)};
  params.memory_limit = Draw(random, 1, 2 * params.ranks);
  return params;
}

struct Found {
  LanePrice price;
  double bound = 0;  // of the objective
};

Found Search(std::string_view algorithm, ScheduleParams params, Objective objective) {
  params.objective = objective;
  const Schedule schedule = Generate(algorithm, params).value();
  EXPECT_EQ(FirstFault(schedule), "");
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {schedule.placement,   costs,    params.microbatches, 1, true,
                           *params.memory_limit, objective};
  const LanePrice price = PriceLanes(problem, schedule.lanes);
  EXPECT_LE(price.peak_memory, *params.memory_limit * kAbout);
  return {price, LowerBound(problem)};
}

TEST(Objective, EachSearchIsBestInItsOwn) {
  std::mt19937 random(3);
  for (const char* const algorithm : {"zb-auto", "v-auto"}) {
    for (int i = 0; i < Cases(8); ++i) {
      const ScheduleParams params = DrawSearch(random);
      SCOPED_TRACE(fmt::format("{} p={} m={} F={} I={} W={} comm={} limit={}", algorithm,
                               params.ranks, params.microbatches, params.forward,
                               params.backward_input, params.backward_weight, params.comm,
                               *params.memory_limit));
      const Found makespan = Search(algorithm, params, Objective::kMakespan);
      const Found span = Search(algorithm, params, Objective::kSpan);
      EXPECT_GE(makespan.price.makespan * kAbout, makespan.bound);
      EXPECT_GE(makespan.price.longest_span * kAbout, span.bound);
      EXPECT_GE(span.price.longest_span * kAbout, span.bound);
      // Searches do not prove their results shortest, hence the tolerance.
      EXPECT_LE(span.price.longest_span, makespan.price.longest_span * 1.02);
      EXPECT_LE(makespan.price.makespan, span.price.makespan * 1.02);
    }
  }
}

// Without a step that waits for all ranks, memory for 2p microbatches hides the fill and the drain
// (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 3.2).
TEST(Objective, SpansHaveNoIdleTimeWithTwiceTheMemory) {
  for (const int ranks : {2, 4, 8}) {
    ScheduleParams params = {
        .ranks = ranks, .microbatches = 3 * ranks, .memory_limit = 2.0 * ranks};
    const double work = 3.0 * params.microbatches;
    for (const Objective objective : {Objective::kMakespan, Objective::kSpan}) {
      const Found found = Search("zb-auto", params, objective);
      EXPECT_NEAR(found.price.longest_span, work, 1e-9);
      EXPECT_NEAR(found.price.makespan, work + ranks - 1, 1e-9);
    }
  }
}

// On a vee, times that differ leave idle time within spans.
TEST(Objective, NamedVeesTakeIt) {
  for (const char* const algorithm : {"zbv", "v-half", "v-min", "v-1f1b"}) {
    ScheduleParams params = {
        .ranks = 4, .microbatches = 12, .backward_input = 1.3, .backward_weight = 0.6, .comm = 0.2};
    Figures figures[2];
    for (const Objective objective : {Objective::kMakespan, Objective::kSpan}) {
      params.objective = objective;
      figures[static_cast<int>(objective)] = FiguresOf(algorithm, params);
    }
    EXPECT_LE(figures[1].span_bubble, figures[0].span_bubble) << algorithm;
    EXPECT_LE(figures[0].makespan, figures[1].makespan * kAbout) << algorithm;
  }
}

TEST(Objective, IsReadAsText) {
  EXPECT_EQ(ParseObjective("span"), Objective::kSpan);
  EXPECT_EQ(ParseObjective("makespan"), Objective::kMakespan);
  EXPECT_EQ(ParseObjective("spam").error().line(),
            "'spam': give makespan or span; did you mean 'span'?");
}

TEST(Objective, OnlySearchesTakeIt) {
  ScheduleParams params = {.objective = Objective::kSpan};
  for (const Algorithm& algorithm : Catalog()) {
    if (algorithm.supported.objective) continue;
    const auto refused = CheckParams(algorithm, params);
    ASSERT_FALSE(refused) << algorithm.name;
    EXPECT_TRUE(CheckParams(algorithm, DropUnsupported(algorithm, params))) << algorithm.name;
  }
}

}  // namespace
}  // namespace penstock::testing
