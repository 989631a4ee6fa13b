#include "runtime/emulated_stage.h"

#include <gtest/gtest.h>
#include <time.h>

#include "probe_stage.h"
#include "random_schedule.h"
#include "runtime/run.h"

namespace penstock {
namespace {

std::vector<Stage*> Raw(const std::vector<std::unique_ptr<Stage>>& owned) {
  std::vector<Stage*> stages;
  for (const auto& stage : owned) stages.push_back(stage.get());
  return stages;
}

double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(EmulatedStageTest, RunsAnyScheduleAndProvesItsDelivery) {
  Random random(31);
  EmulationOptions options;
  options.unit = std::chrono::microseconds(20);
  for (int i = 0; i < 30; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const auto owned = MakeEmulatedStages(
        schedule, Costs::Uniform(schedule.placement, schedule.cuts, 1, 1, 1), options);
    RunOptions run;
    run.steps = 2;
    const Status status = RunRanks(schedule, Raw(owned), run);
    ASSERT_TRUE(status) << status.error().message;
    for (const auto& stage : owned) EXPECT_EQ(stage->ActivationBytes(), 0);
  }
}

TEST(EmulatedStageTest, ManyRanksTakeTheirTimeWithoutACore) {
  constexpr int kRanks = 32;
  const Schedule schedule = SmallGpipe(kRanks, 8);
  EmulationOptions options;
  options.unit = std::chrono::milliseconds(2);
  const auto owned =
      MakeEmulatedStages(schedule, Costs::Uniform(schedule.placement, 1, 1, 0.5, 0.5), options);
  Trace trace = Trace::Make(schedule).value();
  RunOptions run;
  run.trace = &trace;
  const double cpu_before = ProcessCpuSeconds();
  ASSERT_TRUE(RunRanks(schedule, Raw(owned), run));
  const double cpu = ProcessCpuSeconds() - cpu_before;
  const RunMeasure measure = MeasureRound(trace, 0);
  double busy = 0;
  for (const RankMeasure& rank : measure.ranks) busy += rank.busy;
  EXPECT_GE(busy, kRanks * 8 * 2 * 0.002);  // 1.02 s of emulated compute
  EXPECT_LT(cpu, busy / 2);
}

// As the cost model says: no sooner than its longer part, and both are held meanwhile.
TEST(EmulatedStageTest, APairTakesTheTimeOfAPair) {
  Schedule schedule;
  schedule.placement = Placement::Linear(1);
  schedule.microbatches = 2;
  schedule.lanes = {{Forward(0, 0), Overlap(Forward(0, 1), Backward(0, 0)), Backward(0, 1)}};
  Costs costs = Costs::Uniform(schedule.placement, 1, 2, 1, 2);
  costs.overlap = {OverlapRule::Kind::kFactor, 2};
  EmulationOptions options;
  options.activation_bytes = 1000;
  const auto owned = MakeEmulatedStages(schedule, costs, options);
  Trace trace = Trace::Make(schedule).value();
  RunOptions run;
  run.trace = &trace;
  ASSERT_TRUE(RunRanks(schedule, Raw(owned), run));
  const Span pair = MeasuredTimeline(trace, 0).spans[0][1];
  EXPECT_GE(pair.end - pair.start, 2 * (2 + 3) * 0.001);
  EXPECT_EQ(MeasureRound(trace, 0).ranks[0].peak_activation_bytes, 2000);
}

TEST(EmulatedStageTest, AWrongOrMissingMessageIsABug) {
  const Schedule schedule = SmallGpipe(2, 2);
  const auto owned = MakeEmulatedStages(schedule, Costs::Uniform(schedule.placement, 1, 0, 0, 0),
                                        EmulationOptions());
  struct Catch final : Outlet {
    void Send(Message message) override { caught = std::move(message); }
    Message caught;
  } outlet;
  for (const auto& stage : owned) stage->BeginStep(0);
  EXPECT_THROW(owned[1]->Forward(0, Message(), outlet), InternalError);
  owned[0]->Forward(1, Message(), outlet);
  EXPECT_THROW(owned[1]->Forward(0, std::move(outlet.caught), outlet), InternalError);
}

}  // namespace
}  // namespace penstock
