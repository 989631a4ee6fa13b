// A search never returns what a schedule with a name or a smaller limit beats.
#include "schedule/search/within_limit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "schedule/search/problem/price_lanes.h"
#include "tests/cases.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

struct Times {
  double forward, backward_input, backward_weight, comm;
};
struct Case {
  int ranks, microbatches;
  Times times;
};

ScheduleParams ParamsOf(const Case& each, Objective objective) {
  return {.ranks = each.ranks,
          .microbatches = each.microbatches,
          .forward = each.times.forward,
          .backward_input = each.times.backward_input,
          .backward_weight = each.times.backward_weight,
          .comm = each.times.comm,
          .objective = objective};
}

LanePrice PriceOf(std::string_view name, const ScheduleParams& params) {
  const Schedule schedule = Generate(name, params).value();
  EXPECT_EQ(FirstFault(schedule), "") << name;
  const Costs costs = CostsOf(params, schedule.placement);
  return PriceLanes({schedule.placement, costs, params.microbatches}, schedule.lanes);
}

// Whether `a` beats `b`: less of the first figure that differs.
bool Beats(const LanePrice& a, const LanePrice& b, Objective objective) {
  std::array<double LanePrice::*, 3> figures = {&LanePrice::makespan, &LanePrice::longest_span,
                                                &LanePrice::peak_memory};
  if (objective == Objective::kSpan) std::swap(figures[0], figures[1]);
  for (double LanePrice::*const figure : figures) {
    const double slack = 1e-9 * std::abs(b.*figure);
    if (std::abs(a.*figure - b.*figure) > slack) return a.*figure < b.*figure;
  }
  return false;
}

std::string Text(const LanePrice& price) {
  return fmt::format("makespan {}, span {}, memory {}", price.makespan, price.longest_span,
                     price.peak_memory);
}

Case RandomCase(std::mt19937& random) {
  const int ranks = Draw(random, 2, 5);
  return {ranks,
          Draw(random, 1, 2 * ranks),
          {1, 0.1 * Draw(random, 6, 15), 0.1 * Draw(random, 4, 13), 0.1 * Draw(random, 0, 5)}};
}

constexpr Times kEqual = {1, 1, 1, 0};
constexpr Times kUneven = {1, 0.6, 1.7, 0};
constexpr Times kWithLatency = {1, 1.2, 0.8, 0.3};

TEST(WithinLimit, NoScheduleWithANameBeatsASearch) {
  std::vector<Case> cases = {{2, 3, kEqual}, {4, 7, kEqual}, {3, 8, kUneven}, {4, 6, kWithLatency}};
  std::mt19937 random(11);
  for (int i = 0; i < Cases(8); ++i) cases.push_back(RandomCase(random));
  const std::vector<std::pair<std::string_view, std::vector<std::string_view>>> searches = {
      {"zb-auto", {"zb-h1", "zb-h2", "1f1b", "gpipe", "naive"}},
      {"v-auto", {"zbv", "v-half", "v-min", "v-1f1b"}}};
  for (const Case& each : cases) {
    for (const auto objective : {Objective::kMakespan, Objective::kSpan}) {
      if (objective == Objective::kSpan && each.ranks > 3) continue;  // takes longer
      for (const auto& [search, names] : searches) {
        for (const std::string_view name : names) {
          ScheduleParams params = ParamsOf(each, Objective::kMakespan);
          const LanePrice named = PriceOf(name, params);
          params.objective = objective;
          params.memory_limit = named.peak_memory;
          const LanePrice found = PriceOf(search, params);
          EXPECT_LE(found.peak_memory, named.peak_memory * (1 + 1e-9));
          EXPECT_FALSE(Beats(named, found, objective))
              << fmt::format("{} p={} m={} F,I,W={},{},{}: {} has {}, found {}", search, each.ranks,
                             each.microbatches, each.times.forward, each.times.backward_input,
                             each.times.backward_weight, name, Text(named), Text(found));
        }
      }
    }
  }
}

// A whole backward that takes less than I and W, as with launches, may be worth more than a split.
TEST(WithinLimit, WholeBackwardsBeatNoSearch) {
  for (const auto& [search, name, stages] :
       {std::tuple{"zb-auto", "1f1b", 4}, {"zb-auto", "gpipe", 4}, {"v-auto", "v-1f1b", 8}}) {
    ScheduleParams params = ParamsOf({4, 6, kEqual}, Objective::kMakespan);
    StageCosts stage{1, 1, 1};
    stage.saved_by_whole_backward = 0.9;
    params.costs.emplace().stages.assign(stages, stage);
    const LanePrice named = PriceOf(name, params);
    params.memory_limit = named.peak_memory;
    const LanePrice found = PriceOf(search, params);
    EXPECT_FALSE(Beats(named, found, Objective::kMakespan))
        << search << ": " << name << " has " << Text(named) << ", found " << Text(found);
  }
}

TEST(WithinLimit, MoreMemoryIsNeverWorse) {
  std::vector<Case> cases = {
      {2, 5, kUneven}, {4, 9, kUneven}, {3, 6, kWithLatency}, {16, 48, kUneven}};
  std::mt19937 random(13);
  for (int i = 0; i < Cases(4); ++i) cases.push_back(RandomCase(random));
  for (const Case& each : cases) {
    for (const std::string_view search : {"zb-auto", "v-auto", "hanayo"}) {
      if (each.ranks == 16 && search == "v-auto") continue;  // takes longer
      LanePrice previous;
      const int step = std::max(1, each.ranks / 8);
      const int most = std::min(each.microbatches, 2 * each.ranks);
      for (int limit = step; limit <= most; limit += step) {
        ScheduleParams params = ParamsOf(each, Objective::kMakespan);
        params.memory_limit = limit;
        const LanePrice found = PriceOf(search, params);
        EXPECT_LE(found.peak_memory, limit * (1 + 1e-9));
        EXPECT_LE(found.makespan, previous.makespan * (1 + 1e-9))
            << fmt::format("{} p={} m={} limit {}", search, each.ranks, each.microbatches, limit);
        previous = found;
      }
    }
  }
}

// Returns every order in which a rank can run so many microbatches of one stage.
std::vector<Lane> AllLanes(int stage, int microbatches) {
  std::vector<Lane> all;
  Lane lane;
  const auto extend = [&](auto&& self, int f, int i, int w) -> void {
    if (w == microbatches) all.push_back(lane);
    const auto run = [&](const Action& action, int more_f, int more_i, int more_w) {
      lane.push_back(action);
      self(self, f + more_f, i + more_i, w + more_w);
      lane.pop_back();
    };
    if (f < microbatches) run(Forward(stage, f), 1, 0, 0);
    if (i < f) run(BackwardInput(stage, i), 0, 1, 0);
    if (w < i) run(BackwardWeight(stage, w), 0, 0, 1);
  };
  extend(extend, 0, 0, 0);
  return all;
}

// Returns the price of every combination of orders of the ranks.
std::vector<LanePrice> AllPrices(const Problem& problem) {
  std::vector<std::vector<Lane>> choices;
  for (int rank = 0; rank < problem.placement.ranks(); ++rank) {
    choices.push_back(AllLanes(rank, problem.indices));
  }
  std::vector<LanePrice> prices;
  std::vector<Lane> lanes(choices.size());
  const auto choose = [&](auto&& self, std::size_t rank) -> void {
    if (rank == choices.size()) return prices.push_back(PriceLanes(problem, lanes));
    for (const Lane& lane : choices[rank]) {
      lanes[rank] = lane;
      self(self, rank + 1);
    }
  };
  choose(choose, 0);
  return prices;
}

// The limits of a test: sixteenths of a microbatch.
constexpr int kParts = 16;

// No order of the actions beats zb-auto within any limit.
TEST(WithinLimit, SmallSearchesFindTheBestOrderWithinAnyLimit) {
  std::mt19937 random(17);
  for (const auto& [ranks, microbatches] : {std::pair(2, 2), {2, 3}, {3, 2}}) {
    for (int i = 0; i < Cases(3); ++i) {
      ScheduleParams params =
          ParamsOf({ranks, microbatches, RandomCase(random).times}, Objective::kMakespan);
      params.kept_for_weight = 0.1 * Draw(random, 1, 10);
      const Placement placement = Placement::Linear(ranks);
      const Costs costs = CostsOf(params, placement);
      const std::vector<LanePrice> all = AllPrices({placement, costs, microbatches});
      for (int limit = kParts; limit <= microbatches * kParts; ++limit) {
        params.memory_limit = static_cast<double>(limit) / kParts;
        double shortest = kNever;
        for (const LanePrice& price : all) {
          if (price.peak_memory > *params.memory_limit * (1 + 1e-9)) continue;
          shortest = std::min(shortest, price.makespan);
        }
        const LanePrice found = PriceOf("zb-auto", params);
        EXPECT_LE(found.peak_memory, *params.memory_limit * (1 + 1e-9));
        EXPECT_NEAR(found.makespan, shortest, 1e-9 * shortest)
            << fmt::format("p={} m={} kept {} limit {}", ranks, microbatches,
                           params.kept_for_weight, *params.memory_limit);
      }
    }
  }
}

// Any limit, also between whole microbatches, for each schedule that takes one.
TEST(WithinLimit, MoreMemoryIsNeverWorseInSixteenths) {
  std::mt19937 random(19);
  for (int i = 0; i < Cases(3); ++i) {
    Case each = RandomCase(random);
    each.ranks = std::min(each.ranks, 3);
    for (const Algorithm& algorithm : Catalog()) {
      if (!algorithm.supported.memory_limit) continue;
      ScheduleParams params = ParamsOf(each, Objective::kMakespan);
      if (i % 2 == 0) params.kept_for_weight = 0.1 * Draw(random, 1, 10);
      if (algorithm.supported.waves) params.waves = Draw(random, 1, 3);
      LanePrice previous;
      const int most = std::min(each.microbatches, each.ranks + 1);
      for (int limit = kParts; limit <= most * kParts; limit += Draw(random, 1, 4)) {
        params.memory_limit = static_cast<double>(limit) / kParts;
        const LanePrice found = PriceOf(algorithm.name, params);
        EXPECT_LE(found.peak_memory, *params.memory_limit * (1 + 1e-9));
        EXPECT_LE(found.makespan, previous.makespan * (1 + 1e-9))
            << fmt::format("{} p={} m={} kept {} limit {}", algorithm.name, each.ranks,
                           each.microbatches, params.kept_for_weight, *params.memory_limit);
        previous = found;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::testing
