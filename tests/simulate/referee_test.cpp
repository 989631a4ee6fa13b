// The simulator against tests/referee/referee.py, written independently: bitwise the same times.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "random_schedule.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

struct Case {
  Schedule schedule;
  Costs costs;
};

Json CaseJson(const Case& one) {
  std::vector<double> f, i, w;
  for (const StageCosts& stage : one.costs.stages) {
    f.push_back(stage.forward);
    i.push_back(stage.backward_input);
    w.push_back(stage.backward_weight);
  }
  const StageCosts& first = one.costs.stages.front();
  return {{"csv", WriteCsv(one.schedule)},
          {"microbatches", one.schedule.microbatches},
          {"replicas", one.schedule.placement.replicas()},
          {"f", f},
          {"i", i},
          {"w", w},
          {"comm", one.costs.comm},
          {"act", first.activation},
          {"act_after_i", first.activation > 0 ? first.activation_after_i / first.activation : 1},
          {"overlap", one.costs.overlap.kind == OverlapRule::Kind::kMax},
          {"timeline", true}};
}

// One verdict a case, from one run of Python for all of them.
std::vector<Json> Judge(const std::vector<Case>& cases) {
  const std::filesystem::path folder(testing::TempDir());
  const std::string name = std::to_string(getpid());  // test programs may run side by side
  const std::filesystem::path input = folder / ("penstock_cases_" + name + ".jsonl");
  const std::filesystem::path output = folder / ("penstock_verdicts_" + name + ".jsonl");
  {
    std::ofstream file(input);
    for (const Case& one : cases) file << CaseJson(one).dump() << '\n';
  }
  const std::string command = "/usr/bin/python3 '" PENSTOCK_TESTS_DIR "/referee/judge_cases.py' '" +
                              input.string() + "' > '" + output.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::vector<Json> verdicts;
  std::ifstream file(output);
  for (std::string line; std::getline(file, line);) verdicts.push_back(Json::parse(line));
  std::filesystem::remove(input);
  std::filesystem::remove(output);
  return verdicts;
}

void ExpectSameTimes(const Schedule& schedule, const Timeline& timeline, const Json& verdict) {
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    std::size_t computed = 0;
    for (std::size_t a = 0; a < schedule.lanes[r].size(); ++a) {
      if (!IsCompute(schedule.lanes[r][a])) continue;
      const Json& event = verdict["timeline"][r][computed++];
      ASSERT_EQ(event[0], ToText(schedule.lanes[r][a]));
      ASSERT_EQ(event[1], timeline.spans[r][a].start) << event[0];
      ASSERT_EQ(event[2], timeline.spans[r][a].end) << event[0];
    }
    ASSERT_EQ(computed, verdict["timeline"][r].size());
  }
}

void ExpectSame(const Case& one, const Json& verdict) {
  ASSERT_TRUE(verdict["valid"].get<bool>()) << verdict["violations"];
  Timeline timeline;
  const auto result = Simulate(one.schedule, one.costs, {.timeline = &timeline});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(verdict["actions"], result->actions);
  EXPECT_EQ(verdict["transfers"], result->messages);
  EXPECT_EQ(verdict["makespan"], result->makespan);
  EXPECT_EQ(verdict["bubble"], result->bubble);
  EXPECT_EQ(verdict["span_bubble"], result->span_bubble);
  EXPECT_EQ(verdict["peak_memory_split"], result->peak_memory);
  for (std::size_t r = 0; r < result->ranks.size(); ++r) {
    EXPECT_EQ(verdict["rank_busy"][r], result->ranks[r].busy);
    EXPECT_EQ(verdict["rank_start"][r], result->ranks[r].first_start);
    EXPECT_EQ(verdict["rank_end"][r], result->ranks[r].last_end);
    EXPECT_EQ(verdict["rank_peak_memory_split"][r], result->ranks[r].peak_memory);
  }
  ExpectSameTimes(one.schedule, timeline, verdict);
}

void ExpectRefereeAgrees(const std::vector<Case>& cases) {
  const std::vector<Json> verdicts = Judge(cases);
  ASSERT_EQ(verdicts.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i) + ":\n" + WriteCsv(cases[i].schedule));
    ExpectSame(cases[i], verdicts[i]);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Referee, AgreesOnRandomOrders) {
  std::mt19937 random(20240607);
  std::vector<Case> cases;
  for (int i = 0; i < 600; ++i) {
    RandomShape shape;
    shape.placement = RandomPlacement(random);
    shape.microbatches = static_cast<int>(1 + random() % 5) * shape.placement.replicas();
    shape.pairs = random() % 2 == 0;
    shape.communication = random() % 2 == 0;
    Schedule schedule = RandomSchedule(shape, random);
    Costs costs = RandomCosts(shape.placement, random);
    cases.push_back({std::move(schedule), std::move(costs)});
  }
  ExpectRefereeAgrees(cases);
}

TEST(Referee, AgreesOnTheCatalog) {
  std::mt19937 random(7);
  std::vector<Case> cases;
  for (const Algorithm& algorithm : Catalog()) {
    int wanted = 24;
    for (int attempt = 0; attempt < 400 && wanted > 0; ++attempt) {
      ScheduleParams params;
      params.ranks = static_cast<int>(1 + random() % 6);
      params.chunks = random() % 2 == 0 ? 0 : static_cast<int>(1 + random() % 3);
      params.microbatches = static_cast<int>(1 + random() % 16);
      auto schedule = Generate(algorithm.name, params);
      // Orders of cuts and of batches are beyond the referee.
      if (!schedule || schedule->cuts > 1 || schedule->steps > 1) continue;
      if (!RequireTorchOps(*schedule) && schedule->placement.replicas() == 1) continue;
      Costs costs = RandomCosts(schedule->placement, random);
      Schedule lowered = AddCommunication(*schedule);
      cases.push_back({std::move(*schedule), costs});
      cases.push_back({std::move(lowered), std::move(costs)});
      --wanted;
    }
  }
  ASSERT_GT(cases.size(), 100U);
  ExpectRefereeAgrees(cases);
}

}  // namespace
}  // namespace penstock
