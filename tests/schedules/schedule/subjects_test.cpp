// Every refusal of a parameter says which parameter it is about, and what is accepted.
#include <gtest/gtest.h>

#include <limits>

#include "base/text/yaml_map.h"
#include "schedule/catalog.h"
#include "schedule/pricing/action_prices.h"
#include "schedule/pricing/microbatch_lengths.h"
#include "schedule/text/text.h"
#include "simulate/simulate.h"
#include "tests/schedules/schedule/figures.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock {
namespace {

TEST(Subjects, EveryFieldOfScheduleParams) {
  const int huge = std::numeric_limits<int>::max();
  struct Case {
    const char* schedule;
    std::string parameter;
    ScheduleParams params;
    const char* says = "";
  };
  const Costs of_three = Costs::Uniform(Placement::Linear(3), 1, 1, 1, 1);
  const std::vector<Case> cases = {
      {"1f1b", "ranks", {.ranks = 0}},
      {"1f1b", "ranks", {.ranks = -3}},
      {"1f1b", "ranks", {.ranks = huge}},
      {"1f1b", "ranks", {.ranks = 70000}, "at most"},
      {"chimera", "ranks", {.ranks = 3}, "even"},
      {"dualpipe", "ranks", {.ranks = 3}, "even"},
      {"1f1b", "chunks", {.chunks = 2}},
      {"1f1b", "chunks", {.chunks = -1}},
      {"hanayo", "chunks", {.chunks = 3}},
      {"seq1f1b", "chunks", {.chunks = 3}},
      {"1f1b", "microbatches", {.microbatches = 0}},
      {"1f1b", "microbatches", {.microbatches = huge}},
      {"1f1b", "microbatches", {.ranks = 60000, .microbatches = 2000000000}, "at most"},
      {"chimera", "microbatches", {.microbatches = 7}, "even"},
      {"dualpipe", "microbatches", {.microbatches = 9}, "even"},
      {"dualpipe", "microbatches", {.microbatches = 6}, "at least 2 per rank"},
      {"dualpipev", "microbatches", {.microbatches = 7}, "at least 2 per rank"},
      {"zbv-formatted", "microbatches", {.microbatches = 6}, "at least 2p-1"},
      {"pipedream-2bw", "microbatches", {.microbatches = 3}, "at least one per rank"},
      {"1f1b", "group", {.group = 2}},
      {"interleaved", "group", {.ranks = 8, .group = 3}},
      {"interleaved", "group", {.ranks = 8, .group = -1}},
      {"interleaved-zb", "group", {.ranks = 8, .group = 3}},
      {"1f1b", "slices", {.slices = 2}},
      {"seq1f1b", "slices", {.slices = 0}},
      {"1f1b", "waves", {.waves = 2}},
      {"hanayo", "waves", {.waves = -2}},
      {"hanayo", "waves", {.waves = huge}},
      {"hanayo", "waves", {.chunks = 4, .waves = 3}},
      {"1f1b", "steps", {.steps = 2}},
      {"pipedream", "steps", {.steps = -1}},
      {"1f1b", "split", {.split = true}},
      {"1f1b", "memory_limit", {.memory_limit = 2}},
      {"zb-auto", "memory_limit", {.memory_limit = 0.5}},
      {"v-auto", "memory_limit", {.memory_limit = 0.9}},
      {"hanayo", "memory_limit", {.memory_limit = 0.9}},
      {"1f1b", "objective", {.objective = Objective::kSpan}},
      {"1f1b", "costs", {.costs = of_three}}};
  for (const auto& [schedule, parameter, params, says] : cases) {
    const auto refused = Generate(schedule, params);
    ASSERT_TRUE(Refused(refused, says, ErrorCode::kInvalidArgument))
        << schedule << " " << parameter;
    EXPECT_EQ(refused.error().parameter, parameter) << refused.error().line();
    EXPECT_EQ(refused.error().where, fmt::format("schedule {}", schedule));
  }
  EXPECT_TRUE(Refused(Generate("2f2b", {}), "interleaved")) << "lists the names";
}

TEST(Subjects, CsvOptions) {
  const auto subject = [](const CsvOptions& options) {
    const auto schedule = ParseCsv("0F0,0B0\n", options);
    return schedule ? "" : schedule.error().parameter;
  };
  EXPECT_EQ(subject({.microbatches = 0}), "microbatches");
  EXPECT_EQ(subject({.slices = 0}), "slices");
  EXPECT_EQ(subject({.steps = 0}), "steps");
}

TEST(Subjects, PricesAndLengths) {
  const Schedule schedule = testing::Make("1f1b", {1, 0, 2});
  Costs costs = testing::CostsFor(schedule, {});
  for (const std::vector<std::string>& prices : {std::vector<std::string>{"stp=1"},
                                                 {"step"},
                                                 {"step=x"},
                                                 {"step=-1"},
                                                 {"step=1", "step=2"}}) {
    const Status refused = SetActionPrices(prices, schedule, costs);
    ASSERT_FALSE(refused) << prices[0];
    EXPECT_EQ(refused.error().parameter, "price") << refused.error().line();
  }
  for (const std::vector<double>& lengths : {std::vector<double>{0}, {1, 2, 3}, {1, 1e17}}) {
    const Status refused = ScaleByLength(costs, lengths, {schedule.placement, 2, 1});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().parameter, "microbatch_lengths") << refused.error().line();
  }
}

TEST(Subjects, EveryCostOfASimulation) {
  const Schedule schedule = testing::Make("1f1b", {1, 0, 2});
  const auto subject = [&schedule](const auto& change) {
    Costs costs = testing::CostsFor(schedule, {});
    change(costs);
    const auto result = Simulate(schedule, costs);
    return result ? "" : result.error().parameter;
  };
  const double infinite = std::numeric_limits<double>::infinity();
  for (const StageCost& cost : kStageCosts) {
    EXPECT_EQ(subject([&](Costs& costs) { costs.stages[0].*cost.value = infinite; }), cost.name);
  }
  EXPECT_EQ(subject([](Costs& costs) { costs.comm = -1; }), "comm");
  EXPECT_EQ(subject([](Costs& costs) { costs.overlap.factor = -1; }), "overlap");
  EXPECT_EQ(subject([](Costs& costs) { costs.offload = -1; }), "offload");
  EXPECT_EQ(subject([](Costs& costs) { costs.reload = -1; }), "reload");
  EXPECT_EQ(subject([](Costs& costs) { costs.exchange = -1; }), "exchange");
  EXPECT_EQ(subject([](Costs& costs) { costs.offload_sharing = 2; }), "offload_sharing");
}

}  // namespace
}  // namespace penstock
