// Random chains of passes with random arguments over the whole catalog: the schedule is valid after
// each pass, and the result runs.
#include <gtest/gtest.h>

#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/schedules/schedule/passes/pass_figures.h"
#include "tests/schedules/schedule/random_catalog.h"
#include "tests/schedules/schedule/slow_checker.h"

namespace penstock::testing {
namespace {

bool Has(const Schedule& schedule, std::initializer_list<Op> ops) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      for (const Op op : ops) {
        if (action.first.op == op || action.second.op == op) return true;
      }
    }
  }
  return false;
}

void ExpectNoPeakHigher(const SimulationResult& before, const SimulationResult& after) {
  for (std::size_t rank = 0; rank < after.ranks.size(); ++rank) {
    EXPECT_LE(after.ranks[rank].peak_memory, before.ranks[rank].peak_memory + 1e-9) << rank;
  }
}

struct Step {
  std::string pass;
  const Schedule& before;
  const Schedule& after;
  Costs costs;

  bool Is(const char* name) const { return pass.rfind(name, 0) == 0; }
  bool HasLimit() const { return pass.find('=') != std::string::npos; }
};

// Checks that passes which must not delay any action keep the makespan.
void ExpectTimesKept(const Step& step) {
  Costs costs = step.costs;
  // Ignores the time of sharding and STEPs, and what they wait for: an action that takes no time
  // delays nothing.
  for (StageCosts& stage : costs.stages) {
    if (step.Is("sharding") || step.Is("reduce-grad")) stage.unshard = stage.reduce = 0;
    if (step.Is("optimizer")) stage.step = stage.reduce = 0;
  }
  // A STEP waits for the replicas of its stage, and then delays what comes after it in another
  // batch.
  const bool waits = step.after.placement.replicas() > 1 || step.after.steps > 1;
  if (step.Is("communication") || step.pass == "wait-send" || step.Is("offload") ||
      step.Is("sharding") || step.Is("reduce-grad") || (step.Is("optimizer") && !waits)) {
    EXPECT_NEAR(Price(step.after, costs).makespan, Price(step.before, costs).makespan, 1e-9);
  }
}

void ExpectMemoryKept(const Step& step) {
  if (!step.Is("offload") && !step.Is("recompute")) return;
  const SimulationResult before = Price(step.before, step.costs);
  const SimulationResult after = Price(step.after, step.costs);
  if (step.HasLimit() && step.after.lanes != step.before.lanes) {
    const double limit = std::stod(step.pass.substr(step.pass.find('=') + 1));
    for (const RankResult& rank : after.ranks) EXPECT_LE(rank.peak_memory, limit + 1e-9);
  }
  // With transfers in flight the peak depends on the clock, which RECOMPUTE advances.
  if (!Has(step.before, {Op::kOffload, Op::kUnshard})) ExpectNoPeakHigher(before, after);
}

void ExpectFormKept(const Step& step) {
  if (step.Is("split-backward")) {
    EXPECT_FALSE(Has(step.after, {Op::kBackward}));
  }
  if (step.pass == "merge-backward") {
    EXPECT_FALSE(Has(step.after, {Op::kBackwardInput}));
  }
  if (step.Is("overlap")) {
    EXPECT_GE(CountPairs(step.after), CountPairs(step.before));
  }
}

// Adds one pass. A limit that cannot be met leaves the schedule unchanged.
void Apply(const std::string& pass, Schedule& schedule, const Costs& costs) {
  auto changed =
      RunSchedulePasses(schedule, std::vector<std::string>{pass}, SimulatedContext(costs));
  if (!changed) {
    const bool limited = pass.find("recompute=") == 0 || pass.find("offload=") == 0;
    ASSERT_TRUE(limited && changed.error().code == ErrorCode::kInfeasible)
        << changed.error().line();
    return;
  }
  ASSERT_EQ(FirstFault(*changed), "");
  ASSERT_TRUE(SlowlyValid(*changed));
  const Step step = {pass, schedule, *changed, costs};
  ExpectTimesKept(step);
  ExpectMemoryKept(step);
  ExpectFormKept(step);
  schedule = std::move(*changed);
}

TEST(PassChains, StayValidAndRunInAnyOrder) {
  constexpr int kSchedulesEach = Cases(60);
  std::mt19937 random(21);
  for (Schedule schedule : DrawCatalog(kSchedulesEach, random)) {
    const Costs costs = DrawPassCosts(schedule, random);
    std::string so_far = Name(schedule);
    for (int left = Draw(random, 1, 8); left > 0; --left) {
      const std::string pass = DrawPass(random);
      so_far += " " + pass;
      SCOPED_TRACE(so_far);
      Apply(pass, schedule, costs);
      if (HasFailure()) return;
    }
    SCOPED_TRACE(so_far);
    ExpectRoundTrip(schedule);
  }
}

}  // namespace
}  // namespace penstock::testing
