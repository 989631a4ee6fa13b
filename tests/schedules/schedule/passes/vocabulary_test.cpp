// The pass that shards the vocabulary over the ranks.
#include "schedule/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/index.h"
#include "schedule/data_parallel.h"
#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "tests/results.h"
#include "tests/schedules/schedule/passes/pass_figures.h"
#include "tests/schedules/schedule/slow_checker.h"

namespace penstock::testing {
namespace {

// Costs of a pipeline whose layers are balanced, with random passes of the vocabulary.
Costs DrawCosts(const Schedule& schedule, std::mt19937& random) {
  Costs costs = Costs::Uniform(schedule.placement, 1, Draw(random, 1, 4), Draw(random, 1, 4),
                               Draw(random, 1, 4), 0.05 * Draw(random, 0, 2));
  costs.exchange = 0.1 * Draw(random, 0, 3);
  const double input = 0.25 * Draw(random, 0, 8), weight = 0.25 * Draw(random, 0, 4);
  const double embed = 0.05 * Draw(random, 0, 4);
  for (StageCosts& stage : costs.stages) {
    stage.vocabulary_input = input;
    stage.vocabulary_weight = weight;
    stage.embed = stage.embed_gradient = embed;
  }
  return costs;
}

// The time that a rank works on one microbatch.
double WorkOf(const Costs& costs, const Schedule& schedule) {
  double work = 0;
  for (const int stage : schedule.placement.stages_of(0)) {
    for (const Op op : {Op::kForward, Op::kBackward})
      work += costs.Duration(MakeAction(op, stage, 0));
  }
  const int stage = VocabularyStages(schedule).front();
  for (const Op op :
       {Op::kEmbed, Op::kVocabularyInput, Op::kVocabularyWeight, Op::kEmbedGradient}) {
    work += costs.Duration(MakeAction(op, stage, 0));
  }
  return work;
}

// The most microbatches (of all stages) whose activations a rank holds at a time.
int MostInFlight(const Lane& lane) {
  int most = 0, held = 0;
  for (const Action& action : lane) {
    if (action.first.op == Op::kForward) ++held;
    most = std::max(most, held);
    if (EndsMicrobatch(action.first.op)) --held;
  }
  return most;
}

TEST(Vocabulary, OneFOneBHoldsOneMicrobatchMore) {
  std::mt19937 random(5);
  for (int round = 0; round < Cases(200); ++round) {
    const int p = Draw(random, 1, 12), m = Draw(random, 1, 40);
    const Schedule plain = Make("1f1b", {p, 1, m});
    const auto sharded = ValueOf(AddVocabulary(plain, DrawCosts(plain, random)));
    ASSERT_EQ(FirstFault(sharded), "") << Name(plain);
    ASSERT_TRUE(SlowlyValid(sharded));
    for (int rank = 0; rank < p; ++rank) {
      ASSERT_EQ(MostInFlight(sharded.lanes[Index(rank)]), std::min(m, p - rank + 1))
          << Name(plain) << " rank " << rank;
    }
  }
}

// A rank holds the softmaxes of at most two microbatches.
TEST(Vocabulary, TKeepsUpWithS) {
  std::mt19937 random(6);
  for (int round = 0; round < Cases(100); ++round) {
    const Schedule plain = Make("1f1b", {Draw(random, 1, 8), 1, Draw(random, 1, 30)});
    const auto sharded = ValueOf(AddVocabulary(plain, DrawCosts(plain, random)));
    for (const Lane& lane : sharded.lanes) {
      int ahead = 0;
      for (const Action& action : lane) {
        if (action.first.op == Op::kVocabularyInput) ++ahead;
        if (action.first.op == Op::kVocabularyWeight) --ahead;
        ASSERT_LE(ahead, 2) << Name(plain);
      }
    }
  }
}

// In the middle of a step no rank idles for long: each further microbatch takes little more than
// the time that a rank works on it.
TEST(Vocabulary, OneFOneBHasFewBubblesInItsMiddle) {
  std::mt19937 random(7);
  double worst = 0;
  for (int round = 0; round < Cases(60); ++round) {
    const int p = Draw(random, 2, 10), m = 4 * p + Draw(random, 0, 20);
    const Schedule shorter = Make("1f1b", {p, 1, m});
    const Schedule longer = Make("1f1b", {p, 1, 2 * m});
    Costs costs = DrawCosts(shorter, random);
    costs.comm = costs.exchange = 0;
    const auto one = AddVocabulary(shorter, costs), other = AddVocabulary(longer, costs);
    ASSERT_TRUE(one && other);
    const double each = (Price(*other, costs).makespan - Price(*one, costs).makespan) / m;
    worst = std::max(worst, each / WorkOf(costs, *one));
  }
  EXPECT_LT(worst, 1.1);
}

// Every schedule with one chain and a flush, unless it has pairs.
TEST(Vocabulary, TakesEverySynchronousScheduleOfOneChain) {
  std::mt19937 random(8);
  int taken = 0;
  for (const Schedule& plain : DrawCatalog(Cases(40), random)) {
    const auto sharded = AddVocabulary(plain, DrawPassCosts(plain, random));
    const bool only_compute = std::ranges::all_of(plain.lanes, [](const Lane& lane) {
      return std::ranges::all_of(
          lane, [](const Action& action) { return IsCompute(action) && !action.is_pair(); });
    });
    const bool expected = plain.placement.replicas() == 1 && plain.slices == 1 &&
                          plain.steps == 1 && plain.weights == WeightPolicy::kFlush && only_compute;
    ASSERT_EQ(sharded.has_value(), expected)
        << Name(plain) << (sharded ? "" : ": " + sharded.error().line());
    if (!sharded) continue;
    ++taken;
    ASSERT_EQ(FirstFault(*sharded), "") << Name(plain);
    EXPECT_EQ(*AddVocabulary(*sharded, {}).map([](const Schedule& s) { return s.lanes; }),
              sharded->lanes);
  }
  EXPECT_GT(taken, Cases(300));
}

TEST(Vocabulary, OtherPassesFollowIt) {
  std::mt19937 random(9);
  int changed = 0;
  for (int round = 0; round < Cases(150); ++round) {
    const Schedule plain = Make(Draw(random, 0, 1) == 0 ? "1f1b" : "zb-h1",
                                {Draw(random, 1, 5), 1, Draw(random, 1, 10)});
    const Costs costs = DrawPassCosts(plain, random);
    auto schedule = ValueOf(AddVocabulary(plain, costs));
    for (int left = Draw(random, 1, 6); left > 0; --left) {
      const std::string pass = DrawPass(random);
      auto next =
          RunSchedulePasses(schedule, std::vector<std::string>{pass}, SimulatedContext(costs));
      const bool refuses = pass.starts_with("overlap") || pass.starts_with("wait-send");
      ASSERT_TRUE(next || refuses || next.error().code == ErrorCode::kInfeasible)
          << pass << ": " << next.error().line();
      if (!next) continue;
      ASSERT_EQ(FirstFault(*next), "") << pass << " on " << Name(plain);
      ASSERT_TRUE(SlowlyValid(*next)) << pass;
      ASSERT_TRUE(next->vocabulary);
      changed += next->lanes == schedule.lanes ? 0 : 1;
      schedule = std::move(*next);
    }
    ExpectRoundTrip(schedule);
  }
  EXPECT_GT(changed, Cases(200));
}

TEST(Vocabulary, RefusalsSayWhy) {
  const auto message = [](const Schedule& schedule) {
    return LineOf(AddVocabulary(schedule, Costs::Uniform(schedule.placement, 1, 1, 1, 1)));
  };
  EXPECT_NE(message(Make("dualpipe", {4, 1, 8})).find("replicas"), std::string::npos);
  EXPECT_NE(message(Make("pipedream", {4, 1, 8})).find("flush"), std::string::npos);
  EXPECT_NE(message(AddCommunication(Make("1f1b", {4, 1, 8}))).find("SEND_F"), std::string::npos);

  const Schedule plain = Make("1f1b", {2, 1, 4});
  const auto sharded = AddVocabulary(plain, Costs::Uniform(plain.placement, 1, 1, 1, 1));
  ASSERT_TRUE(sharded);
  EXPECT_TRUE(Refused(RequireTorchOps(*sharded), "EMBED"));
  EXPECT_FALSE(AddDataParallelism(*sharded, 2));
}

// The text of what the validator finds.
TEST(Vocabulary, FaultsNameTheMissingPass) {
  const Schedule plain = Make("1f1b", {3, 1, 4});
  const auto sharded = AddVocabulary(plain, Costs::Uniform(plain.placement, 1, 1, 1, 1));
  ASSERT_TRUE(sharded);
  Schedule without = *sharded;
  std::erase(without.lanes[1], MakeAction(Op::kVocabularyInput, 1, 2));
  std::erase(without.lanes[1], MakeAction(Op::kVocabularyWeight, 1, 2));
  const std::string waits = FirstFault(without);
  EXPECT_NE(waits.find("waits for 1S2 of rank 1, which never runs it"), std::string::npos) << waits;
  without = *sharded;
  std::erase(without.lanes[2], MakeAction(Op::kVocabularyWeight, 2, 3));
  EXPECT_TRUE(Contains(FirstFault(without), "2T3: rank 2 lacks it for microbatch 3"));
  without = *sharded;
  without.vocabulary = false;
  EXPECT_NE(FirstFault(without).find("vocabulary is not sharded"), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
