// Searches for ranks whose links differ, such as links between sites: times are the simulator's,
// the bound holds, and knowing the links is better than taking all for the slowest.
#include <gtest/gtest.h>

#include <random>

#include "plan/bound/makespan_bound.h"
#include "schedule/catalog.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/problem/problem.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

// Two sites of equally many ranks.
Costs TwoSites(const Placement& placement, double within, double between) {
  Costs costs = Costs::Uniform(placement, 1, 1, 1.2, 0.8);
  LinkLevel near, far;
  near.name = "site";
  near.ranks = placement.ranks() / 2;
  near.latency = within;
  far.name = "wide area";
  far.latency = between;
  costs.topology.levels = {near, far};
  costs.comm = std::max(within, between);
  return costs;
}

Schedule Searched(const char* algorithm, const Costs& costs, int ranks, int microbatches) {
  return Generate(algorithm, {.ranks = ranks, .microbatches = microbatches, .costs = costs})
      .value();
}

double Makespan(const Schedule& schedule, const Costs& costs) {
  return Simulate(schedule, costs).value().makespan;
}

TEST(UnlikeLinks, PricesAreThoseOfTheSimulator) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 8; ++trial) {
    const char* const algorithm = trial % 2 == 0 ? "zb-auto" : "v-auto";
    const int ranks = trial % 4 < 2 ? 4 : 6;
    const Placement placement = trial % 2 == 0 ? Placement::Linear(ranks) : Placement::Vee(ranks);
    Costs costs = TwoSites(placement, 0.1 * (random() % 5), 0.5 * (random() % 8));
    const Schedule schedule = Searched(algorithm, costs, ranks, 8);
    costs.SetCommByLevel(0);
    const Problem problem = {placement, costs, 8};
    EXPECT_NEAR(PriceLanes(problem, schedule.lanes).makespan, Makespan(schedule, costs), 1e-9);
  }
}

TEST(UnlikeLinks, NoScheduleIsBelowTheBound) {
  for (const char* const algorithm : {"1f1b", "zb-h1", "zbv", "zb-auto", "v-auto", "interleaved"}) {
    for (const double between : {0.0, 0.3, 2.0, 20.0}) {
      const Placement placement =
          Generate(algorithm, {.ranks = 4, .microbatches = 8}).value().placement;
      const Costs costs = TwoSites(placement, 0.1, between);
      const Schedule schedule = Searched(algorithm, costs, 4, 8);
      const double bound = LengthBound(placement, costs, 8, kNever, Objective::kMakespan, false);
      EXPECT_LE(bound, Makespan(schedule, costs) * (1 + 1e-9)) << algorithm << " " << between;
    }
  }
}

TEST(UnlikeLinks, KnowingThemIsNoWorseAndMostlyBetter) {
  int better = 0, all = 0;
  for (const char* const algorithm : {"zb-auto", "v-auto"}) {
    for (const double between : {2.0, 8.0}) {
      const int ranks = 6, microbatches = 12;
      const Placement placement = std::string_view(algorithm) == "zb-auto"
                                      ? Placement::Linear(ranks)
                                      : Placement::Vee(ranks);
      const Costs costs = TwoSites(placement, 0.05, between);
      Costs slowest = costs;
      slowest.topology = {};
      const double known = Makespan(Searched(algorithm, costs, ranks, microbatches), costs);
      const double taken = Makespan(Searched(algorithm, slowest, ranks, microbatches), costs);
      ++all;
      better += known < taken * (1 - 1e-9) ? 1 : 0;
      EXPECT_LE(known, taken * 1.02) << algorithm << " " << between;
    }
  }
  EXPECT_GE(2 * better, all);
}

}  // namespace
}  // namespace penstock
