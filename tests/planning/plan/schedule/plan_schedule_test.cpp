#include "plan/schedule/plan_schedule.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/search/problem/problem.h"
#include "schedule/validate/validate.h"
#include "simulate/simulate.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr double kSlack = 1e-9;

ScheduleQuestion QuestionOf(int ranks, int microbatches, double limit) {
  ScheduleQuestion question;
  question.params.ranks = ranks;
  question.params.microbatches = microbatches;
  question.params.memory_limit = limit;
  question.params.overlap = {OverlapRule::Kind::kSum};
  return question;
}

ScheduleQuestion RandomQuestion(std::mt19937& rng) {
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  ScheduleQuestion question = QuestionOf(1 + below(4), 1 + below(6), 1 + below(8) / 2.0);
  question.params.forward = 1 + below(3) / 2.0;
  question.params.backward_input = 1 + below(3) / 2.0;
  question.params.backward_weight = below(4) / 2.0;
  question.params.comm = below(3) / 4.0;
  if (below(4) == 0) question.params.objective = Objective::kSpan;
  question.chunks.clear();
  for (int chunks = 1; chunks <= 3; ++chunks) {
    if (below(2) == 0) question.chunks.push_back(chunks);
  }
  if (question.chunks.empty()) question.chunks = {1 + below(3)};
  return question;
}

// The length and memory that the simulator finds.
void ExpectAsSimulated(const ScheduleQuestion& question, const PlannedSchedule& planned) {
  EXPECT_TRUE(Validate(planned.schedule).empty()) << planned.name;
  const auto result = Simulate(planned.schedule, planned.costs);
  ASSERT_TRUE(result) << planned.name;
  EXPECT_DOUBLE_EQ(result->makespan, planned.makespan);
  EXPECT_DOUBLE_EQ(result->peak_memory, planned.peak_memory);
  EXPECT_LE(planned.peak_memory, *question.params.memory_limit * (1 + kSlack));
  EXPECT_GE(planned.length, planned.lower_bound * (1 - kSlack)) << planned.name;
  EXPECT_GE(planned.length, planned.placement_bound * (1 - kSlack)) << planned.name;
}

TEST(PlanScheduleTest, EveryScheduleOfTheFrontIsValidAndNotBelowTheBound) {
  std::mt19937 rng(1);
  for (int round = 0; round < 30; ++round) {
    const ScheduleQuestion question = RandomQuestion(rng);
    const auto plan = ValueOf(PlanSchedule(question));
    double previous = std::numeric_limits<double>::infinity();
    for (const PlannedSchedule& planned : plan.front) {
      ExpectAsSimulated(question, planned);
      EXPECT_LT(planned.length, previous);
      previous = planned.length;
    }
    EXPECT_GE(plan.best().length, plan.lower_bound * (1 - kSlack));
  }
}

TEST(PlanScheduleTest, MoreMemoryIsNeverWorse) {
  std::mt19937 rng(2);
  for (int round = 0; round < 3; ++round) {
    ScheduleQuestion question = RandomQuestion(rng);
    double previous = std::numeric_limits<double>::infinity();
    for (const double limit : {1.0, 1.3, 1.5, 2.0, 2.4, 3.0, 4.5, 6.0, 100.0}) {
      question.params.memory_limit = limit;
      const auto plan = ValueOf(PlanSchedule(question));
      EXPECT_LE(plan.best().length, previous) << limit;
      previous = plan.best().length;
    }
  }
}

TEST(PlanScheduleTest, NoScheduleOfTheCatalogThatFitsIsShorter) {
  std::mt19937 rng(3);
  for (int round = 0; round < 12; ++round) {
    ScheduleQuestion question = RandomQuestion(rng);
    question.chunks = {1, 2, 3, 4};
    question.params.objective = Objective::kMakespan;
    const auto plan = ValueOf(PlanSchedule(question));
    for (const Algorithm& algorithm : Catalog()) {
      if (algorithm.supported.steps) continue;
      for (const int chunks : question.chunks) {
        ScheduleParams params = DropUnsupported(algorithm, question.params);
        params.chunks = chunks;
        const auto schedule = Generate(algorithm.name, params);
        if (!schedule) continue;
        Costs costs = CostsOf(params, schedule->placement);
        costs.overlap = params.overlap;
        const auto result = Simulate(*schedule, costs);
        ASSERT_TRUE(result);
        if (result->peak_memory > *question.params.memory_limit * (1 + kSlack)) continue;
        EXPECT_LE(plan.best().length, result->makespan * (1 + kSlack))
            << algorithm.name << " ranks " << params.ranks << " microbatches "
            << params.microbatches << " chunks " << chunks;
      }
    }
  }
}

TEST(PlanScheduleTest, TheSameQuestionHasTheSameAnswer) {
  const ScheduleQuestion question = QuestionOf(4, 8, 3);
  const auto first = PlanSchedule(question), second = PlanSchedule(question);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->best().schedule.lanes, second->best().schedule.lanes);
  EXPECT_EQ(first->searches, second->searches);
}

TEST(PlanScheduleTest, OverlappedPairsCountAtTheirPrice) {
  ScheduleQuestion question = QuestionOf(4, 16, 8);
  const auto without = PlanSchedule(question);
  question.params.overlap = {OverlapRule::Kind::kMax};
  const auto with = PlanSchedule(question);
  ASSERT_TRUE(without && with);
  EXPECT_GE(without->best().makespan, 48);
  EXPECT_LT(with->best().makespan, 48);  // pairs take as long as their longer part
  EXPECT_GE(with->best().makespan, with->lower_bound);
}

TEST(PlanScheduleTest, StopsWithTheBestSoFar) {
  ScheduleQuestion question = QuestionOf(8, 16, 8);
  question.stop = [] { return true; };
  const auto plan = PlanSchedule(question);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stopped);
  EXPECT_EQ(plan->searches, 0);
  ExpectAsSimulated(question, plan->best());
}

TEST(PlanScheduleTest, RefusesWhatHasNoSchedule) {
  const auto too_little = PlanSchedule(QuestionOf(4, 8, 0.5));
  ASSERT_FALSE(too_little);
  EXPECT_EQ(too_little.error().parameter, "memory_limit");
  ScheduleQuestion question = QuestionOf(4, 8, 4);
  question.chunks = {0};
  const auto no_chunks = PlanSchedule(question);
  ASSERT_FALSE(no_chunks);
  EXPECT_EQ(no_chunks.error().parameter, "chunks");
}

}  // namespace
}  // namespace penstock
