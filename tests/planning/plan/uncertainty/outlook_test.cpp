#include "plan/uncertainty/outlook.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "tests/results.h"

namespace penstock {
namespace {

PlanQuestion QuestionOf(const std::string& model, const std::string& nodes) {
  PlanQuestion question;
  question.scenario.model = model;
  question.scenario.device = "a100";
  question.scenario.nodes = nodes;
  question.scenario.overlap = "sum";
  question.global_batch = 16;
  return question;
}

OutlookQuestion DoubtsOf(const Scenario& scenario, double error) {
  OutlookQuestion doubts = {.constants = *UncertainConstants(scenario, {}), .samples = 40};
  for (UncertainConstant& constant : doubts.constants) constant.error *= error;
  return doubts;
}

class OutlookOfPlans : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto answer = SearchPlans(question_);
    ASSERT_TRUE(answer) << answer.error().line();
    answer_ = *std::move(answer);
  }
  Outlook With(double error) {
    auto outlook = OutlookOf(answer_, DoubtsOf(question_.scenario, error));
    EXPECT_TRUE(outlook && *outlook);
    return **std::move(outlook);
  }

  PlanQuestion question_ = QuestionOf(GetParam(), "1x4");
  PlanAnswer answer_;
};

TEST_P(OutlookOfPlans, WithoutUncertaintyTheChoiceWinsAll) {
  const Outlook outlook = With(0);
  EXPECT_EQ(outlook.choice().regret.wins, outlook.samples);
  EXPECT_EQ(outlook.choice().regret.expected, 0);
  EXPECT_EQ(outlook.decisive(), nullptr);
  EXPECT_TRUE(outlook.constants.empty());
  for (const Outlook::Candidate& each : outlook.candidates) {
    EXPECT_NEAR(each.regret.mean_time / each.plan.step_time(), 1, 1e-9) << each.plan.schedule;
  }
}

TEST_P(OutlookOfPlans, FiguresAreOfAllSamples) {
  const Outlook outlook = With(1);
  std::size_t wins = 0;
  for (const Outlook::Candidate& each : outlook.candidates) {
    wins += each.regret.wins;
    EXPECT_GE(each.regret.expected, 0);
    EXPECT_GE(each.regret.expected, outlook.safest().regret.expected);
  }
  EXPECT_EQ(wins, outlook.samples);
  EXPECT_EQ(outlook.choice().plan.step_time(), answer_.best().step_time());
  for (const Outlook::Constant& each : outlook.constants) {
    EXPECT_GE(each.regret_left, 0);
    EXPECT_LE(each.regret_left, outlook.safest().regret.expected * (1 + 1e-12));
  }
}

TEST_P(OutlookOfPlans, TheSameSeedGivesTheSame) {
  const Outlook one = With(1), other = With(1);
  ASSERT_EQ(one.candidates.size(), other.candidates.size());
  for (std::size_t i = 0; i < one.candidates.size(); ++i) {
    EXPECT_EQ(one.candidates[i].regret.mean_time, other.candidates[i].regret.mean_time);
  }
}

TEST_P(OutlookOfPlans, CandidatesAreUniqueAndHaveTheFront) {
  const std::vector<TrainingPlan> candidates = CandidatesOf(answer_);
  EXPECT_GE(candidates.size(), answer_.front.size() + answer_.runners_up.size());
  EXPECT_EQ(candidates.front().division, answer_.best().division);
  for (const TrainingPlan& plan : candidates) EXPECT_LE(plan.bytes(), answer_.memory_limit);
}

INSTANTIATE_TEST_SUITE_P(Models, OutlookOfPlans,
                         ::testing::Values("gpt2-large", "deepseek-v2-lite"));

TEST(UncertainConstants, HaveTheErrorsOfTheMachine) {
  const std::string path = ::testing::TempDir() + "uncertain_" + std::to_string(getpid()) + ".yaml";
  ASSERT_TRUE(WriteFileAtomically(path,
                                  "constants:\n"
                                  "  - for: {device: a100}\n"
                                  "    flops_efficiency: {value: 0.5, error: 0.01}\n"
                                  "    device_launch: {value: 10us, error: 1us}\n"
                                  "    hidden_gradients: {value: 0.6, error: 0.1}\n"
                                  "    link_efficiency: 0.5\n"));
  Scenario scenario = QuestionOf("gpt2", "1x4").scenario;
  scenario.machine = path;
  auto constants = UncertainConstants(scenario, {"link-efficiency=0.05"});
  ASSERT_TRUE(constants) << constants.error().line();
  const auto error_of = [&](std::string_view name) {
    return std::ranges::find(*constants, name, &UncertainConstant::name)->error;
  };
  EXPECT_NEAR(error_of("flops_efficiency"), 0.02, 1e-12);
  EXPECT_NEAR(error_of("device_launch"), 0.1, 1e-12);
  EXPECT_NEAR(error_of("hidden_gradients"), 0.25, 1e-12);  // of the 0.4 that is not hidden
  EXPECT_EQ(error_of("link_efficiency"), 0.05);
  scenario.flops_efficiency = 0.4;  // no longer the machine's
  constants = UncertainConstants(scenario, {});
  ASSERT_TRUE(constants) << constants.error().line();
  EXPECT_GT(error_of("flops_efficiency"), 0.02);
}

TEST(UncertainConstants, OneBandwidthVariesAllLinks) {
  Scenario scenario = QuestionOf("gpt2", "1x4").scenario;
  scenario.bandwidth_efficiency = 0.7;
  const auto constants = UncertainConstants(scenario, {});
  ASSERT_TRUE(constants);
  for (std::uint64_t sample = 0; sample < 5; ++sample) {
    const SpeedFactors factors = FactorsOf(*constants, 1, sample);
    EXPECT_EQ(factors.memory, factors.link);
    EXPECT_EQ(factors.memory, factors.network);
    EXPECT_NE(factors.memory, factors.matmul);
  }
}

TEST(UncertainConstants, RefusesOthers) {
  const Scenario scenario = QuestionOf("gpt2", "1x4").scenario;
  for (const auto& [text, part] : {std::pair("link=0.1", "no constant that varies"),
                                   {"link_efficiency", "from 0 to 1"},
                                   {"link_efficiency=2", "from 0 to 1"},
                                   {"link_efficiency=x", "from 0 to 1"}}) {
    EXPECT_TRUE(Refused(UncertainConstants(scenario, {text}), part)) << text;
  }
}

}  // namespace
}  // namespace penstock
