#include "plan/search/misfit.h"

#include <gtest/gtest.h>

#include <regex>

#include "scenario/fields.h"
#include "tests/results.h"

namespace penstock {
namespace {

PlanQuestion QuestionOf(const std::string& model, int batch) {
  PlanQuestion question;
  question.scenario.model = model;
  question.scenario.device = "a100";
  question.scenario.nodes = "1x8";
  question.scenario.overlap = "sum";
  question.global_batch = batch;
  return question;
}

std::string RefusalOf(const PlanQuestion& question) { return LineOf(SearchPlans(question)); }

// Sets the first change that the line proposes; returns whether it proposes one.
bool Apply(const std::string& line, const std::string& name, Scenario& scenario) {
  const std::regex change("`" + name + "` ([^ `)]+)");
  std::smatch found;
  if (!std::regex_search(line, found, change)) return false;
  EXPECT_TRUE(SetText(*FindField(name), found[1], scenario));
  return true;
}

TEST(Misfit, NamesBytesRankAndKinds) {
  const std::string line = RefusalOf(QuestionOf("llama-3-405b", 16));
  for (const char* part : {" on pipeline rank ", " too many (", "weights ", "optimizer states ",
                           "times as many devices (`nodes` "}) {
    EXPECT_NE(line.find(part), std::string::npos) << line;
  }
}

TEST(Misfit, AsManyNodesAsItSaysFit) {
  PlanQuestion question = QuestionOf("llama-3-70b", 64);
  const std::string line = RefusalOf(question);
  ASSERT_TRUE(Apply(line, "nodes", question.scenario)) << line;
  EXPECT_TRUE(SearchPlans(question)) << line;
}

// What the user fixed, and the change that is near.
class NearestChange : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(NearestChange, Fits) {
  const auto& [fixed, change] = GetParam();
  PlanQuestion question = QuestionOf("llama-3-8b", 32);
  question.scenario.tensor = 8;
  question.scenario.sequence = 8192;
  question.memory_limit = 30e9;
  if (std::string_view(fixed) == "recompute") {
    question.scenario.recompute = "none";
    question.scenario.offloaded_layers = 0;
    question.scenario.micro_batch_size = 2;
    question.memory_limit = 28e9;
  } else if (std::string_view(fixed) == "offloaded_layers") {
    question.scenario.device = "h100";
    question.scenario.implementation = "transformer-engine";
    question.scenario.sequence = 32768;
    question.scenario.offloaded_layers = 0;
    question.memory_limit = 19.6 * (1 << 30);
  } else if (std::string_view(fixed) == "micro_batch_size") {
    question.scenario.micro_batch_size = 32;
    question.memory_limit = 30e9;
  } else {
    question.scenario.tensor = 1;
    question.scenario.zero = 0;
    question.scenario.ranks = 1;
    question.memory_limit = 60e9;
  }
  const std::string line = RefusalOf(question);
  ASSERT_TRUE(Apply(line, change, question.scenario)) << line;
  EXPECT_TRUE(SearchPlans(question)) << line;
}

INSTANTIATE_TEST_SUITE_P(Fields, NearestChange,
                         ::testing::Values(std::pair("recompute", "recompute"),
                                           std::pair("offloaded_layers", "offloaded_layers"),
                                           std::pair("micro_batch_size", "micro_batch_size"),
                                           std::pair("zero", "zero")),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace penstock
