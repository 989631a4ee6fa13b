// The validator's verdict on changed schedules, compared with a slow checker's, over the whole
// catalog with every kind of action that passes add.
#include <gtest/gtest.h>

#include <array>

#include "base/index.h"
#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "tests/schedules/schedule/mutate.h"
#include "tests/schedules/schedule/random_catalog.h"
#include "tests/schedules/schedule/slow_checker.h"

namespace penstock::testing {
namespace {

// Returns the schedule after all passes that do not refuse it.
Schedule WithPasses(Schedule schedule, const std::vector<std::string>& passes, const Costs& costs) {
  for (const std::string& pass : passes) {
    auto changed =
        RunSchedulePasses(schedule, std::vector<std::string>{pass}, SimulatedContext(costs));
    if (changed) schedule = std::move(*changed);
  }
  return schedule;
}

TEST(Mutation, ValidatorAgreesWithTheSlowChecker) {
  constexpr int kSchedulesEach = Cases(30), kMutantsEach = 20;
  std::mt19937 random(11);
  std::array<int, 2> verdicts = {};
  for (const Schedule& drawn : DrawCatalog(kSchedulesEach, random)) {
    const Costs costs = DrawPassCosts(drawn, random);
    std::vector<std::string> passes = DrawPasses(Draw(random, 0, 5), random);
    if (Draw(random, 0, 1) == 0) passes.insert(passes.begin(), "vocabulary");
    Schedule sound = WithPasses(drawn, passes, costs);
    if (Draw(random, 0, 1) == 0 && !sound.vocabulary) {
      const int length = drawn.placement.chain_length();
      sound = ValueOf(WithoutBackward(sound, DrawUntrained(length, random)));
    }
    ASSERT_TRUE(SlowlyValid(sound)) << Name(sound) << '\n' << WriteCsv(sound);
    for (int mutant = 0; mutant < kMutantsEach; ++mutant) {
      Schedule changed = sound;
      for (int count = Draw(random, 1, 2); count > 0; --count) Mutate(changed, random);
      const bool expected = SlowlyValid(changed);
      const auto faults = Validate(changed);
      ASSERT_EQ(faults.empty(), expected)
          << Name(changed) << '\n'
          << WriteCsv(changed) << (faults.empty() ? "" : Describe(changed, faults.front()));
      ++verdicts[expected ? 1 : 0];
    }
  }
  EXPECT_GT(verdicts[0], Cases(10000));
  EXPECT_GT(verdicts[1], Cases(1000)) << "changes that keep a schedule valid are tested too";
}

// One change of a valid schedule causes one fault, or few, and their text must help.
TEST(Mutation, EveryFaultNamesItsPlaceAndReason) {
  std::mt19937 random(12);
  for (const Schedule& sound : DrawCatalog(6, random)) {
    Schedule changed = sound;
    Mutate(changed, random);
    for (const Fault& fault : Validate(changed)) {
      ASSERT_GE(fault.rank, 0) << WriteCsv(changed);
      ASSERT_LT(fault.rank, changed.ranks());
      EXPECT_FALSE(fault.action.empty());
      EXPECT_FALSE(fault.reason.empty());
      const std::string text = Describe(changed, fault);
      if (fault.position < 0) continue;
      const Lane& lane = changed.lanes[fault.rank];
      ASSERT_LT(Index(fault.position), lane.size());
      EXPECT_EQ(fault.action, ToText(lane[fault.position]));
      EXPECT_NE(text.find("[" + fault.action + "]"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace penstock::testing
