#include "plan/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <tuple>

#include "plan/search/pricing.h"
#include "tests/results.h"

namespace penstock {
namespace {

PlanQuestion QuestionOf(const std::string& model, const std::string& nodes, int batch) {
  PlanQuestion question;
  question.scenario.model = model;
  question.scenario.device = "a100";
  question.scenario.nodes = nodes;
  question.scenario.overlap = "sum";
  question.global_batch = batch;
  return question;
}

std::int64_t DevicesOf(const JobDivision& of) {
  return std::int64_t{of.tensor} * of.context * of.pipeline * of.data;
}

// A model, nodes and the samples of a step.
using Job = std::tuple<const char*, const char*, int>;

class SearchOfPlans : public ::testing::TestWithParam<Job> {
 protected:
  PlanQuestion question_ =
      QuestionOf(std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam()));
};

TEST_P(SearchOfPlans, GivesAFrontOfWholeDivisions) {
  const auto answer = ValueOf(SearchPlans(question_));
  const auto model = question_.scenario.Load();
  for (const TrainingPlan& plan : answer.front) {
    const JobDivision& division = plan.division;
    EXPECT_EQ(DevicesOf(division), model->cluster.devices());
    EXPECT_EQ(std::int64_t{division.data} * division.micro_batch * division.microbatches,
              question_.global_batch);
    EXPECT_LE(plan.bytes(), answer.memory_limit);
    EXPECT_LE(plan.lower_bound, plan.step_time() * (1 + 1e-9));
    EXPECT_GT(plan.lower_bound, 0);
    for (const TrainingPlan& other : answer.front) {
      if (&other == &plan) continue;
      EXPECT_TRUE(plan.step_time() < other.step_time() || plan.bytes() < other.bytes());
    }
    for (const TrainingPlan& other : answer.runners_up) {
      const JobDivision& of = other.division;
      EXPECT_NE(std::tie(of.tensor, of.context, of.pipeline, of.expert, of.zero),
                std::tie(division.tensor, division.context, division.pipeline, division.expert,
                         division.zero));
    }
  }
}

TEST_P(SearchOfPlans, IsNoSlowerThanOtherConfigurationsThatFit) {
  const PlanQuestion& question = question_;
  const auto answer = ValueOf(SearchPlans(question));
  const auto model = question.scenario.Load();
  DivisionQuestion asked{.scenario = &question.scenario, .shape = model->shape};
  asked.framework = &question.framework;
  asked.device = &model->cluster.device;
  asked.devices = model->cluster.devices();
  asked.linked_devices = model->cluster.linked_devices();
  asked.global_batch = question.global_batch;
  asked.sequence = model->batch.sequence;
  const std::vector<JobDivision> divisions = JobDivisions(asked);
  std::mt19937 random(11);
  for (int run = 0; run < 60; ++run) {
    const JobDivision& division = divisions[random() % divisions.size()];
    const auto choices = ScheduleChoices(division.pipeline, model->shape.layers, {}, {});
    const ScheduleChoice& choice = choices[random() % choices.size()];
    if (choice.searches) continue;
    const auto plan = PriceOf(question.scenario, division, choice);
    if (!plan || plan->bytes() > answer.memory_limit) continue;
    EXPECT_GE(plan->step_time(), answer.best().step_time() * (1 - 1e-9)) << choice.name;
  }
}

TEST_P(SearchOfPlans, KeepsWhatIsGiven) {
  PlanQuestion& question = question_;
  question.scenario.tensor = 2;
  question.scenario.ranks = 2;
  question.scenario.recompute = "full";
  question.schedules = {"1f1b", "interleaved"};
  const auto answer = ValueOf(SearchPlans(question));
  for (const TrainingPlan& plan : answer.front) {
    EXPECT_EQ(plan.division.tensor, 2);
    EXPECT_EQ(plan.division.pipeline, 2);
    EXPECT_EQ(plan.division.recompute, "full");
    EXPECT_TRUE(plan.schedule == "1f1b" || plan.schedule == "interleaved") << plan.schedule;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SearchOfPlans,
                         ::testing::Values(Job("llama-3-8b", "1x8", 32),
                                           Job("gpt2-large", "1x4", 16),
                                           Job("deepseek-v2-lite", "1x4", 16)));

TEST(SearchPlans, OffloadsWhatDoesNotFit) {
  PlanQuestion question = QuestionOf("llama-3-8b", "1x8", 64);
  question.scenario.device = "h100";
  question.scenario.implementation = "transformer-engine";
  question.scenario.sequence = 32768;
  question.memory_limit = 19.6 * (1 << 30);
  const auto answer = ValueOf(SearchPlans(question));
  const TrainingPlan& best = answer.best();
  EXPECT_GT(best.division.offloaded_layers, 0);
  EXPECT_LE(best.bytes(), question.memory_limit);
  question.scenario.offloaded_layers = 0;
  EXPECT_FALSE(SearchPlans(question));
}

TEST(SearchPlans, ChoosesAmongPrecisions) {
  PlanQuestion question = QuestionOf("llama-3-8b", "1x8", 64);
  question.scenario.device = "h100";
  question.scenario.implementation = "transformer-engine";
  double fastest = std::numeric_limits<double>::infinity();
  for (const Precision precision : {Precision::kBf16, Precision::kFp8}) {
    question.precisions = {precision};
    const auto answer = ValueOf(SearchPlans(question));
    EXPECT_EQ(answer.best().division.precision, precision);
    fastest = std::min(fastest, answer.best().step_time());
  }
  question.precisions = {Precision::kBf16, Precision::kFp8};
  const auto both = ValueOf(SearchPlans(question));
  EXPECT_DOUBLE_EQ(both.best().step_time(), fastest);
}

TEST(SearchPlans, RefusesPrecisionsThatCannotBeComputed) {
  PlanQuestion question = QuestionOf("llama-3-8b", "1x8", 64);
  question.precisions = {Precision::kBf16, Precision::kFp8};
  EXPECT_FALSE(SearchPlans(question));
}

TEST(SearchPlans, EndsWithTheBestSoFar) {
  PlanQuestion question = QuestionOf("llama-3-8b", "1x8", 32);
  question.stop = [] { return true; };
  const auto answer = ValueOf(SearchPlans(question));
  EXPECT_TRUE(answer.stopped);
  EXPECT_FALSE(answer.front.empty());
}

}  // namespace
}  // namespace penstock
