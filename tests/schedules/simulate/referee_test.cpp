// The simulator agrees bitwise with tests/schedules/referee/referee.py, which was written
// independently.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/mutate.h"
#include "tests/schedules/simulate/random_schedule.h"

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
          {"microbatches", one.schedule.indices() * one.schedule.placement.replicas()},
          {"replicas", one.schedule.placement.replicas()},
          {"f", f},
          {"i", i},
          {"w", w},
          {"comm", one.costs.comm},
          {"act", first.activation},
          {"act_after_i", first.activation > 0 ? first.activation_after_i / first.activation : 1},
          {"frozen", UntrainedOf(one.schedule).frozen},
          {"adapters", UntrainedOf(one.schedule).adapters},
          {"overlap", one.costs.overlap.kind == OverlapRule::Kind::kMax}};
}

// Returns one verdict per case, from a single run of Python.
std::vector<Json> Judge(const std::vector<Case>& cases) {
  const std::filesystem::path folder(::testing::TempDir());
  const std::string name = std::to_string(getpid());  // test programs may run concurrently
  const std::filesystem::path input = folder / ("penstock_cases_" + name + ".jsonl");
  const std::filesystem::path output = folder / ("penstock_verdicts_" + name + ".jsonl");
  {
    std::ofstream file(input);
    for (const Case& one : cases) file << CaseJson(one).dump() << '\n';
  }
  const std::string command = "/usr/bin/python3 '" PENSTOCK_TESTS_DIR
                              "/schedules/referee/referee.py' '" +
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
  const auto result = ValueOf(Simulate(one.schedule, one.costs, {.timeline = &timeline}));
  EXPECT_EQ(verdict["actions"], result.actions);
  EXPECT_EQ(verdict["transfers"], result.messages);
  EXPECT_EQ(verdict["makespan"], result.makespan);
  EXPECT_EQ(verdict["bubble"], result.bubble);
  EXPECT_EQ(verdict["span_bubble"], result.span_bubble);
  EXPECT_EQ(verdict["peak_memory"], result.peak_memory);
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    EXPECT_EQ(verdict["rank_busy"][r], result.ranks[r].busy);
    EXPECT_EQ(verdict["rank_start"][r], result.ranks[r].first_start);
    EXPECT_EQ(verdict["rank_end"][r], result.ranks[r].last_end);
    EXPECT_EQ(verdict["rank_peak_memory"][r], result.ranks[r].peak_memory);
  }
  ExpectSameTimes(one.schedule, timeline, verdict);
}

void ExpectRefereeAgrees(const std::vector<Case>& cases) {
  const std::vector<Json> verdicts = Judge(cases);
  ASSERT_EQ(verdicts.size(), cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i) + ":\n" + WriteCsv(cases[i].schedule));
    ExpectSame(cases[i], verdicts[i]);
    if (::testing::Test::HasFailure()) return;
  }
}

// Makes half of the schedules those of models with untrained stages.
Schedule PerhapsUntrained(Schedule schedule, std::mt19937& random) {
  if (random() % 2 == 0) return schedule;
  const int length = schedule.placement.chain_length();
  return ValueOf(WithoutBackward(schedule, testing::DrawUntrained(length, random)));
}

TEST(Referee, AgreesOnRandomOrders) {
  std::mt19937 random(20240607);
  std::vector<Case> cases;
  for (int i = 0; i < 600; ++i) {
    RandomShape shape = DrawShape(5, random);
    shape.pairs = random() % 2 == 0;
    shape.communication = random() % 2 == 0;
    Schedule schedule = PerhapsUntrained(RandomSchedule(shape, random), random);
    Costs costs = RandomCosts(shape.placement, random);
    cases.push_back({std::move(schedule), std::move(costs)});
  }
  ExpectRefereeAgrees(cases);
}

// Keeps only the actions of torch, which the referee supports. Without STEPs, all batches are one.
Schedule WithoutSteps(Schedule schedule) {
  schedule.microbatches *= schedule.steps;
  schedule.steps = 1;
  schedule.weights = WeightPolicy::kFlush;
  for (Lane& lane : schedule.lanes) {
    std::erase_if(lane, [](const Action& action) { return action.first.op == Op::kStep; });
  }
  return schedule;
}

// Draws `count` cases of each algorithm. Half of the schedules are generated for the costs that
// price them.
std::vector<Case> DrawCatalogCases(int count, std::mt19937& random) {
  std::vector<Case> cases;
  for (const Algorithm& algorithm : Catalog()) {
    int left = count;
    for (int attempt = 0; attempt < 50 * count && left > 0; ++attempt) {
      ScheduleParams params = testing::DrawParams(algorithm, random);
      auto schedule = Generate(algorithm.name, params);
      if (!schedule) continue;
      Costs costs = RandomCosts(schedule->placement, random);
      if (random() % 2 == 0) {
        params.costs = costs;
        schedule = Generate(algorithm.name, params);
        if (!schedule) continue;  // these costs exceed the memory limit
      }
      cases.push_back(
          {PerhapsUntrained(WithoutSteps(std::move(*schedule)), random), std::move(costs)});
      --left;
    }
    EXPECT_EQ(left, 0) << algorithm.name;
  }
  return cases;
}

TEST(Referee, AgreesOnTheCatalog) {
  std::mt19937 random(7);
  std::vector<Case> cases = DrawCatalogCases(testing::Cases(60), random);
  for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
    const Schedule& schedule = cases[i].schedule;
    const Costs costs = cases[i].costs;
    ASSERT_TRUE(Validate(schedule).empty()) << WriteCsv(schedule);
    Schedule lowered = AddCommunication(schedule);
    ASSERT_TRUE(Validate(lowered).empty()) << WriteCsv(lowered);
    ASSERT_EQ(Simulate(lowered, costs)->makespan, Simulate(schedule, costs)->makespan);
    cases.push_back({std::move(lowered), costs});
  }
  ASSERT_GT(cases.size(), std::size_t{testing::Cases(2000)});
  ExpectRefereeAgrees(cases);
}

// Returns a random form of the schedule in actions of torch: split, paired, lowered, sharded.
Schedule InActionsOfTorch(Schedule schedule, const Costs& costs, std::mt19937& random) {
  if (random() % 3 == 0) schedule = MergeBackward(schedule);
  if (random() % 3 == 0) schedule = PairForwardBackward(schedule, costs, {.all = true});
  if (random() % 3 == 0) schedule = SplitBackward(schedule, {.delay = int(random() % 3)});
  if (random() % 2 == 0) schedule = AddCommunication(schedule);
  if (random() % 3 == 0) schedule = *AddSharding(schedule, {.lookahead = int(random() % 3)});
  return schedule;
}

// The referee does not check on which rank a stage is unsharded and its gradients reduced, and
// knows no waits.
bool RefereeKnows(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (const Action& action : schedule.lanes[rank]) {
      const bool shard = action.first.op >= Op::kUnshard && action.first.op <= Op::kReduceGrad;
      if (shard && schedule.placement.rank_of(action.first.stage) != rank) return false;
      if (IsWait(action.first.op)) return false;
    }
  }
  return true;
}

TEST(Referee, AgreesOnWhatIsValid) {
  constexpr int kMutantsEach = 8;
  std::mt19937 random(8);
  std::vector<Case> cases;
  for (const Case& drawn : DrawCatalogCases(testing::Cases(16), random)) {
    if (drawn.schedule.slices > 1) continue;  // the referee has no rule for their order
    const Schedule sound = InActionsOfTorch(drawn.schedule, drawn.costs, random);
    for (int mutant = 0; mutant < kMutantsEach; ++mutant) {
      Case changed = {sound, drawn.costs};
      for (unsigned count = 1 + random() % 2; count > 0; --count) {
        testing::Mutate(changed.schedule, random);
      }
      if (RefereeKnows(changed.schedule)) cases.push_back(std::move(changed));
    }
  }
  const std::vector<Json> verdicts = Judge(cases);
  ASSERT_EQ(verdicts.size(), cases.size());
  std::array<int, 2> counts = {};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::vector<Fault> faults = Validate(cases[i].schedule);
    const bool valid = verdicts[i]["valid"].get<bool>();
    ASSERT_EQ(faults.empty(), valid)
        << WriteCsv(cases[i].schedule) << verdicts[i]
        << (faults.empty() ? "" : Describe(cases[i].schedule, faults.front()));
    ++counts[valid ? 1 : 0];
  }
  EXPECT_GT(counts[0], testing::Cases(1500));
  EXPECT_GT(counts[1], testing::Cases(150));
}

}  // namespace
}  // namespace penstock
