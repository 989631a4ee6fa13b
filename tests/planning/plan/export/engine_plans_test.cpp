// Without a framework, plans are what the engine runs: `penstock train` accepts each of them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "config/run_schedule.h"
#include "plan/export/plan_files.h"
#include "plan/request/plan_request.h"
#include "plan/search/framework.h"
#include "tests/results.h"

namespace penstock {
namespace {

using Random = std::mt19937;

template <class Value>
Value Pick(Random& random, std::initializer_list<Value> values) {
  return *(values.begin() +
           std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random));
}

// A model with random sizes, some of which no number of ranks divides.
void SetModel(Random& random, Scenario& scenario) {
  scenario.model =
      Pick(random, {"decoder", "decoder", "gpt2", "deepseek-v2-lite", "qwen3-30b-a3b"});
  scenario.layers = Pick(random, {4, 6, 8});
  if (*scenario.model != "decoder") return;
  scenario.heads = Pick(random, {4, 6, 8});
  scenario.kv_heads = *scenario.heads / Pick(random, {1, 2});
  scenario.dim = 32 * *scenario.heads;
  scenario.hidden = Pick(random, {128, 132, 126});
  scenario.vocabulary = Pick(random, {512, 513});
  scenario.tied = Pick(random, {false, true});
  if (Pick(random, {0, 1}) == 0) return;
  scenario.experts = 8;
  scenario.top_k = 2;
  scenario.expert_hidden = Pick(random, {32, 36, 31});
}

PlanRequest RandomRequest(Random& random) {
  PlanRequest request;
  Scenario& scenario = request.scenario;
  SetModel(random, scenario);
  scenario.device = "h100";
  scenario.nodes = Pick(random, {"1x4", "1x8", "2x4"});
  scenario.sequence = Pick(random, {64, 96, 512});
  request.global_batch = Pick(random, {8, 16});
  if (Pick(random, {0, 1}) == 0) scenario.tensor = Pick(random, {1, 2, 4});
  if (Pick(random, {0, 1}) == 0) {
    scenario.context = Pick(random, {2, 4});
    if (Pick(random, {0, 1}) == 0) {
      scenario.context_exchange = Pick(random, {"all-gather", "ulysses", "ring"});
    }
  } else if (Pick(random, {0, 1, 2}) == 0) {
    scenario.sequence = 8192;  // long enough for several context ranks
  }
  if (Pick(random, {0, 1}) == 0) scenario.precision = Pick(random, {"bf16", "f32"});
  if (Pick(random, {0, 2}) == 0) scenario.sequence_parallel = false;
  if (Pick(random, {0, 2}) == 0) request.schedules = {Pick(random, {"zbv", "seq1f1b", "dualpipe"})};
  return request;
}

std::string_view NameOf(ContextExchange exchange) {
  return kContextExchangeNames[static_cast<std::size_t>(exchange)];
}

// As `penstock train` does.
void ExpectAccepted(const TrainingPlan& plan, const std::string& folder) {
  const JobDivision& division = plan.division;
  for (const PlanFile& file : ValueOf(WritePlanFiles(plan, folder))) {
    if (file.framework != kEngineFramework) continue;
    ASSERT_FALSE(file.reason) << file.reason->line();
    TrainConfig config = ValueOf(LoadTrainConfig(file.path));
    const auto schedule = ChooseSchedule(config, 4);
    ASSERT_TRUE(schedule) << schedule.error().line();
    EXPECT_EQ(config.parallel.tensor, division.tensor);
    EXPECT_EQ(config.parallel.context, division.context);
    if (division.context > 1) {
      EXPECT_EQ(config.parallel.context_exchange, NameOf(division.context_exchange));
    }
    EXPECT_EQ(config.parallel.data, division.data);
    EXPECT_EQ(config.parallel.expert, division.expert);
    EXPECT_EQ(config.parallel.gather_again, division.gather_again);
    EXPECT_EQ(config.pipeline.ranks, division.pipeline);
    EXPECT_EQ(config.batch, division.micro_batch);
  }
}

TEST(EnginePlans, TrainAcceptsEveryPlan) {
  Random random(58);
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("engine_plans_" + std::to_string(getpid()));
  int plans = 0, divided = 0, with_experts = 0, gathering = 0;
  std::map<std::string_view, int> exchanged;
  for (int run = 0; run < 40; ++run) {
    const PlanRequest request = RandomRequest(random);
    SCOPED_TRACE(run);
    const auto answer = SearchPlans(ValueOf(ModelQuestionOf(request)));
    if (!answer) continue;  // what was fixed has no plan
    for (const std::vector<TrainingPlan>* const each : {&answer->front, &answer->runners_up}) {
      for (const TrainingPlan& plan : *each) {
        ExpectAccepted(plan, folder.string());
        ++plans;
        divided += plan.division.tensor > 1 ? 1 : 0;
        if (plan.division.context == 1) continue;
        ++exchanged[NameOf(plan.division.context_exchange)];
        with_experts += plan.division.expert > 1 ? 1 : 0;
        gathering += plan.division.gather_again ? 1 : 0;
      }
    }
  }
  EXPECT_GT(plans, 50);
  EXPECT_GT(divided, 20);
  EXPECT_GT(with_experts, 3);
  EXPECT_GT(gathering, 3);
  for (const std::string_view name : kContextExchangeNames) EXPECT_GT(exchanged[name], 1) << name;
  std::filesystem::remove_all(folder);
}

TEST(EnginePlans, OthersAreProposedForOtherFrameworks) {
  PlanRequest request;
  request.scenario.model = "gpt2";
  request.scenario.nodes = "1x4";
  request.scenario.recompute = "full";
  request.global_batch = 8;
  const auto refused = SearchPlans(ValueOf(ModelQuestionOf(request)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().parameter, "recompute");
  EXPECT_NE(refused.error().message.find("unless `for` names"), std::string::npos);
  request.framework = "megatron";
  EXPECT_TRUE(SearchPlans(ValueOf(ModelQuestionOf(request))));
  request.framework.reset();
  request.scenario.implementation = "penstock";  // whose plans the engine is to run, too
  EXPECT_FALSE(SearchPlans(ValueOf(ModelQuestionOf(request))));
  request.scenario.implementation = "transformer-engine";
  const auto answer = SearchPlans(ValueOf(ModelQuestionOf(request)));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->best().framework, "megatron");
}

}  // namespace
}  // namespace penstock
