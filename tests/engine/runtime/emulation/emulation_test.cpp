#include "runtime/emulation/emulation.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "runtime/executor/run.h"
#include "runtime/program.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "simulate/summary.h"
#include "tests/cases.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/mutate.h"
#include "tests/schedules/schedule/random_catalog.h"

namespace penstock {
namespace {

using testing::Name;

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Actions are too short for threads to sleep. Due times do not depend on the clock.
constexpr EmulationOptions kAtOnce{.unit = std::chrono::microseconds(1),
                                   .activation_bytes = 1 << 20};
constexpr double kRounding = 0.0005;  // units per action

// Runs the schedule and expects due times, messages and peak memory as simulated.
void ExpectAsSimulated(const Schedule& schedule, const Costs& costs) {
  Timeline timeline;
  const auto simulated = ValueOf(Simulate(schedule, costs, {.timeline = &timeline}));
  Emulation machine(schedule, costs, kAtOnce);
  RunOptions options = {.transport = &machine.transport()};
  EXPECT_TRUE(Succeeds(RunRanks(schedule, machine.stages(), options)));
  EXPECT_EQ(machine.messages(), static_cast<std::int64_t>(CountMessages(schedule)));
  const double allowed = kRounding * static_cast<double>(schedule.action_count());
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::size_t r = rank;
    const std::vector<Span> due = machine.DueSpans(rank);
    std::size_t next = 0;
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      if (!OccupiesRank(schedule.lanes[r][i].first.op)) continue;
      ASSERT_LT(next, due.size());
      ASSERT_NEAR(due[next].start, timeline.spans[r][i].start, allowed)
          << "rank " << rank << ", " << ToText(schedule.lanes[r][i]);
      ASSERT_NEAR(due[next].end, timeline.spans[r][i].end, allowed);
      ++next;
    }
    EXPECT_NEAR(static_cast<double>(machine.PeakBytes(rank)) / kAtOnce.activation_bytes,
                simulated.ranks[r].peak_memory, 1e-5)
        << "rank " << rank;
  }
}

ScheduleParams ParamsFor(const Algorithm& algorithm, int ranks) {
  ScheduleParams params = {.ranks = ranks, .microbatches = 2 * ranks, .comm = 0.25};
  if (algorithm.supported.slices) params.slices = 2;
  if (algorithm.supported.steps) params.steps = 3;
  return params;
}

TEST(EmulationTest, UnequalSlicesAreDueAsSimulated) {
  for (const bool split : {false, true}) {
    const Schedule schedule =
        Generate("seq1f1b", {.ranks = 3, .microbatches = 4, .slices = 3, .split = split}).value();
    Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 3, 3, 3, 0.25);
    for (int i = 0; i < schedule.stages() * schedule.slices; ++i) {
      const int slice = i % schedule.slices;
      StageCosts& of = costs.by_slice.emplace_back(costs.stages.front());
      of.forward = of.backward_input = 1 + slice;
      of.gradients_of_others = slice == 2 ? 6 : -3;
    }
    ExpectAsSimulated(schedule, costs);
  }
}

TEST(EmulationTest, CatalogSchedulesAreDueAsSimulated) {
  std::vector<int> sizes = {2, 8};
#ifndef PENSTOCK_SANITIZED
  sizes.push_back(32);
#endif
  for (const int ranks : sizes) {
    for (const Algorithm& algorithm : Catalog()) {
      const auto schedule = Generate(algorithm.name, ParamsFor(algorithm, ranks));
      if (!schedule) continue;
      ExpectAsSimulated(*schedule,
                        Costs::Uniform(schedule->placement, schedule->slices, 1, 1.5, 0.75, 0.25));
      if (HasFailure()) FAIL() << Name(*schedule);
    }
  }
}

// Stages that lack a part of the backward, with and without passes.
TEST(EmulationTest, UntrainedStagesAreDueAsSimulated) {
  Random random(33);
  for (const Schedule& drawn : testing::DrawCatalog(testing::Cases(12), random)) {
    const Costs costs = testing::DrawPassCosts(drawn, random);
    const int length = drawn.placement.chain_length();
    Schedule schedule = ValueOf(WithoutBackward(drawn, testing::DrawUntrained(length, random)));
    if (testing::Draw(random, 0, 1) == 0) {
      const auto lowered = RunSchedulePasses(
          schedule, std::vector<std::string>{"optimizer", "sharding", "communication"},
          SimulatedContext(costs));
      if (lowered) schedule = *lowered;
    }
    ExpectAsSimulated(schedule, costs);
    if (HasFailure()) FAIL() << Name(schedule) << '\n' << WriteCsv(schedule);
  }
}

// Transfers, collectives, recomputation, and STEPs that wait for other ranks.
TEST(EmulationTest, ActionsAddedByPassesAreDueAsSimulated) {
  Random random(32);
  int ran = 0;
  for (int i = 0; i < testing::Cases(400); ++i) {
    const auto catalog = Catalog();
    const Algorithm& algorithm = catalog[random() % catalog.size()];
    const auto made = Generate(algorithm.name, testing::DrawParams(algorithm, random));
    if (!made) continue;
    Costs costs = testing::DrawPassCosts(*made, random);
    costs.steps_wait_for_all = Uniform(random, 0, 1) == 1;
    const auto passes = testing::DrawPasses(Uniform(random, 0, 4), random);
    const auto schedule = RunSchedulePasses(*made, passes, SimulatedContext(costs));
    // The simulator refuses schedules that deadlock because STEPs inside lanes wait for all ranks.
    if (!schedule || !Simulate(*schedule, costs)) continue;
    if (HasWaitSend(*schedule)) continue;  // the runtime never waits for what it sends
    ++ran;
    ExpectAsSimulated(*schedule, costs);
    if (HasFailure()) {
      FAIL() << Name(*schedule) << " " << fmt::format("{}", fmt::join(passes, ",")) << "\n"
             << WriteCsv(*schedule);
    }
  }
  EXPECT_GT(ran, testing::Cases(100));
}

TEST(EmulationTest, RunsAnyScheduleForSeveralSteps) {
  Random random(31);
  for (int i = 0; i < 30; ++i) {
    const Schedule schedule = RandomSchedule(random);
    Emulation machine(schedule, Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1),
                      kAtOnce);
    RunOptions run = {.steps = 3, .transport = &machine.transport()};
    EXPECT_TRUE(Succeeds(RunRanks(schedule, machine.stages(), run)));
    for (const Stage* stage : machine.stages()) EXPECT_EQ(stage->ActivationBytes(), 0);
  }
}

// A schedule that the validator accepts after any change of its actions runs, and again.
TEST(EmulationTest, RunsWhateverTheValidatorAccepts) {
  Random random(33);
  int ran = 0;
  for (const Schedule& drawn : testing::DrawCatalog(testing::Cases(8), random)) {
    const Costs costs = testing::DrawPassCosts(drawn, random);
    const auto passes = testing::DrawPasses(Uniform(random, 0, 5), random);
    const auto sound = RunSchedulePasses(drawn, passes, SimulatedContext(costs));
    if (!sound) continue;
    for (int mutant = 0; mutant < 30; ++mutant) {
      Schedule changed = *sound;
      for (int count = Uniform(random, 1, 2); count > 0; --count) testing::Mutate(changed, random);
      if (!Validate(changed).empty()) continue;
      ++ran;
      Emulation machine(changed, costs, kAtOnce);
      RunOptions run = {.steps = 2, .transport = &machine.transport()};
      const Status status = RunRanks(changed, machine.stages(), run);
      ASSERT_TRUE(status) << status.error().line() << '\n'
                          << Name(changed) << '\n'
                          << WriteCsv(changed);
      for (const Stage* stage : machine.stages()) {
        ASSERT_EQ(stage->ActivationBytes(), 0) << Name(changed) << '\n' << WriteCsv(changed);
      }
    }
  }
  EXPECT_GT(ran, testing::Cases(300));
}

TEST(EmulationTest, ManyRanksSleepUntilActionsAreDue) {
  constexpr int kRanks = 32;
  const Schedule schedule = SmallGpipe(kRanks, 8);
  EmulationOptions options = {.unit = std::chrono::milliseconds(2)};
  Emulation machine(schedule, Costs::Uniform(schedule.placement, 1, 1, 0.5, 0.5), options);
  Trace trace = Trace::Make(schedule).value();
  RunOptions run = {.trace = &trace, .transport = &machine.transport()};
  const double cpu_before = ProcessCpuSeconds();
  ASSERT_TRUE(RunRanks(schedule, machine.stages(), run));
  const double cpu = ProcessCpuSeconds() - cpu_before;
  // Compares each end with its due time, counted from the start of the devices: a thread that
  // starts late on a loaded machine shortens the measured makespan, but ends no action early.
  double makespan = 0;  // units
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::span<const Stamp> stamps = trace.RankStep(rank, 0);
    const std::vector<Span> due = machine.DueSpans(rank);
    ASSERT_EQ(stamps.size(), due.size());
    for (std::size_t i = 0; i < due.size(); ++i) {
      EXPECT_GE(stamps[i].end_ns - machine.start(),
                std::llround(due[i].end * static_cast<double>(options.unit.count())))
          << "rank " << rank << ", entry " << i;
      makespan = std::max(makespan, due[i].end);
    }
  }
  EXPECT_NEAR(makespan, (8 + kRanks - 1) * 2, kRounding);
  EXPECT_LT(cpu, kRanks * 8 * 2 * 0.002 / 2);  // 1.02 s of emulated compute
}

TEST(EmulationTest, AbortEndsEveryWaitAtOnce) {
  EmulationOptions hours;
  hours.unit = std::chrono::hours(1);
  // Without `steps`, rank 0 sleeps in its F and the others wait for messages. With `steps`, ranks
  // wait for each other's STEPs.
  for (const bool steps : {false, true}) {
    Schedule schedule = SmallGpipe(3, 2);
    Costs costs = Costs::Uniform(schedule.placement, 1, steps ? 0 : 1, 0, 0);
    if (steps) {
      costs.stages[0].backward_weight = 1;
      costs.steps_wait_for_all = true;
      for (int rank = 0; rank < 3; ++rank) {
        schedule.lanes[rank].push_back(MakeAction(Op::kStep, rank));
      }
    }
    Emulation machine(schedule, costs, hours);
    std::atomic<bool> cancel{true};
    RunOptions run = {.cancel = &cancel, .transport = &machine.transport()};
    EXPECT_EQ(LineOf(RunRanks(schedule, machine.stages(), run)), "stopped on request");
  }
}

TEST(EmulationTest, WrongOrMissingMessageThrowsInternalError) {
  const Schedule schedule = SmallGpipe(2, 2);
  Emulation machine(schedule, Costs::Uniform(schedule.placement, 1, 0, 0, 0));
  const auto stages = machine.stages();
  struct Catch final : Outlet {
    void Send(Message message) override { caught = std::move(message); }
    Message caught;
  } outlet;
  for (Stage* stage : stages) stage->BeginStep(0);
  EXPECT_THROW(stages[1]->Forward(0, Message(), outlet), InternalError);
  stages[0]->Forward(1, Message(), outlet);
  EXPECT_THROW(stages[1]->Forward(0, std::move(outlet.caught), outlet), InternalError);
}

}  // namespace
}  // namespace penstock
