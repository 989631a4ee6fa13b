#include "simulate/simulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/summary.h"
#include "tests/results.h"
#include "tests/schedules/simulate/random_schedule.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock {
namespace {

double Makespan(const Schedule& schedule, const Costs& costs) {
  const auto result = Simulate(schedule, costs);
  EXPECT_TRUE(result) << result.error().line();
  return result ? result->makespan : -1;
}

// A B that sends its gradient early is I followed by W.
TEST(Simulate, EarlyGradientsAreThoseOfASplitBackward) {
  std::mt19937 random(11);
  int earlier = 0;
  for (int i = 0; i < 50; ++i) {
    RandomShape shape{.placement = RandomPlacement(random), .microbatches = 4, .pairs = i % 2 == 0};
    const Schedule schedule = RandomSchedule(shape, random);
    Schedule split = schedule;
    for (Lane& lane : split.lanes) {
      Lane halves;
      for (const Action& action : lane) {
        halves.push_back(action);
        if (action.is_pair() || action.first.op != Op::kBackward) continue;
        halves.back().first.op = Op::kBackwardInput;
        halves.push_back(action);
        halves.back().first.op = Op::kBackwardWeight;
      }
      lane = std::move(halves);
    }
    Costs costs = Uniform(schedule, 0.5);
    const double atomic = Makespan(schedule, costs);
    costs.early_gradients = true;
    EXPECT_NEAR(Makespan(schedule, costs), Makespan(split, costs), 1e-9);
    earlier += Makespan(schedule, costs) < atomic ? 1 : 0;
  }
  EXPECT_GT(earlier, 5);
}

// A whole B is shorter than I and W, but its input gradient leaves after I in training.
TEST(Simulate, AWholeBackwardSavesTime) {
  const Schedule schedule = Read("0F0,0B0\n1F0,1B0\n");
  Costs costs = Uniform(schedule);
  for (StageCosts& stage : costs.stages) {
    stage.backward_input = 1;
    stage.backward_weight = 0.75;
    stage.saved_by_whole_backward = 0.5;
  }
  EXPECT_EQ(Makespan(schedule, costs), 2 + 2 * 1.25);
  costs.early_gradients = true;
  EXPECT_EQ(Makespan(schedule, costs), 2 + 1 + 1.25);
}

TEST(Simulate, PairWaitsForBothAndPublishesAtItsEnd) {
  const Schedule schedule = Read("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n");
  Costs costs = Uniform(schedule);
  Timeline timeline = TimelineOf(schedule, costs);
  EXPECT_EQ(timeline.spans[1][1].start, 2);
  EXPECT_EQ(timeline.spans[1][1].end, 4);  // max(1, 2)
  EXPECT_EQ(timeline.spans[0][2].start, 4);
  costs.overlap = {OverlapRule::Kind::kFactor, 0.9};
  timeline = TimelineOf(schedule, costs);
  EXPECT_EQ(timeline.spans[1][1].end, 2 + 0.9 * 3);
}

TEST(Simulate, SlicesWaitForEachOther) {
  // Two slices of one microbatch: on every stage the backward of the second comes first.
  CsvOptions options = {.slices = 2};
  const Schedule sound = Read("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", options);
  EXPECT_EQ(Makespan(sound, Uniform(sound)), (1 * 2 + 2 - 1) * 3 / 2.0);
  const Schedule crossed = Read("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", options);
  EXPECT_FALSE(Simulate(crossed, Uniform(crossed)));
}

TEST(Simulate, ActionsThatDoNotComputeTakeNoTime) {
  const Schedule plain = Read("0F0,0B0\n1F0,1B0\n");
  const Schedule full = Read("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD,0STEP\n1F0,1B0,1STEP\n");
  EXPECT_EQ(Makespan(full, Uniform(full)), Makespan(plain, Uniform(plain)));
  EXPECT_EQ(Simulate(full, Uniform(full))->actions, 4U);
}

TEST(Simulate, DeadlockNamesRanksAndWhatTheyWaitFor) {
  const Schedule schedule = Read("0B0,0F0\n1F0,1B0\n");
  const auto result = Simulate(schedule, Uniform(schedule));
  ASSERT_TRUE(Refused(result, "rank 0 at 0B0 waits for", ErrorCode::kInvalidArgument));
  EXPECT_TRUE(Contains(result.error().line(),
                       "rank 1 at 1F0 waits for the activation of stage 0, "
                       "microbatch 0 (rank 0)"));
  EXPECT_EQ(result.error().line().find('\n'), std::string::npos);
}

TEST(Simulate, MissingSendIsADeadlock) {
  const Schedule schedule = Read("0F0,0B0\n1RECV_F0,1F0,1B0\n");
  EXPECT_FALSE(Simulate(schedule, Uniform(schedule)));
  const Schedule before = Read("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n");
  EXPECT_FALSE(Simulate(before, Uniform(before)));
}

TEST(Simulate, MalformedSchedulesAreRefused) {
  const Schedule schedule = Read("0F0,0B0\n1F0,1B0\n");
  const Costs costs = Uniform(schedule);
  for (const Action& action :
       {Forward(1, 0), Forward(7, 0), Forward(0, 1), Forward(0, -1),
        MakeAction(Op::kSendForward, 9, 0), Overlap(Forward(0, 0), Backward(9, 0)),
        Overlap(Forward(0, 0), MakeAction(Op::kStep, 0))}) {
    Schedule broken = schedule;
    broken.lanes[0].push_back(action);
    EXPECT_FALSE(Simulate(broken, costs)) << ToText(action);
  }
  Schedule fewer = schedule;
  fewer.lanes.pop_back();
  EXPECT_FALSE(Simulate(fewer, costs));
  Schedule negative = schedule;
  negative.microbatches = -4;
  EXPECT_FALSE(Simulate(negative, costs));
  Schedule unsliced = schedule;
  unsliced.slices = 0;
  EXPECT_FALSE(Simulate(unsliced, costs));
}

TEST(Simulate, RefusesInvalidCosts) {
  const Schedule schedule = Read("0F0,0B0\n1F0,1B0\n");
  Costs fewer = Uniform(schedule);
  fewer.stages.pop_back();
  EXPECT_EQ(Simulate(schedule, fewer).error().code, ErrorCode::kInvalidArgument);
  for (const double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Costs costs = Uniform(schedule);
    costs.stages[1].backward_weight = wrong;
    EXPECT_FALSE(Simulate(schedule, costs));
    EXPECT_FALSE(Simulate(schedule, Uniform(schedule, wrong)));
  }
}

TEST(Simulate, ScheduleWithoutActionsTakesNoTime) {
  Schedule schedule = Read("0F0\n1F0\n");
  for (Lane& lane : schedule.lanes) lane.clear();
  const auto result = Simulate(schedule, Uniform(schedule));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->makespan, 0);
  EXPECT_EQ(result->bubble, 0);
  EXPECT_EQ(result->span_bubble, 0);
}

TEST(Simulate, LoweredFormTakesTheSameTime) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    RandomShape shape = DrawShape(4, random);
    shape.slices = static_cast<int>(1 + random() % 3);
    shape.pairs = random() % 2 == 0;
    const Schedule schedule = RandomSchedule(shape, random);
    const Costs costs = RandomCosts(shape.placement, random);
    ASSERT_EQ(Makespan(AddCommunication(schedule), costs), Makespan(schedule, costs))
        << WriteCsv(schedule);
  }
}

// The figures of the timeline equal the simulator's.
TEST(Summary, AgreesWithTheSimulator) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    RandomShape shape = DrawShape(4, random);
    shape.communication = random() % 2 == 0;
    const Schedule schedule = RandomSchedule(shape, random);
    const auto [simulated, timeline] =
        SimulateWithTimes(schedule, RandomCosts(shape.placement, random));
    const SimulationResult summary = Summarize(schedule, timeline);
    EXPECT_EQ(summary.makespan, simulated.makespan);
    EXPECT_EQ(summary.actions, simulated.actions);
    EXPECT_EQ(summary.messages, simulated.messages);
    EXPECT_NEAR(summary.bubble, simulated.bubble, 1e-9);
    for (std::size_t r = 0; r < summary.ranks.size(); ++r) {
      EXPECT_NEAR(summary.ranks[r].busy, simulated.ranks[r].busy, 1e-9);
      EXPECT_EQ(summary.ranks[r].first_start, simulated.ranks[r].first_start);
      EXPECT_EQ(summary.ranks[r].last_end, simulated.ranks[r].last_end);
    }
  }
}

TEST(Memory, CurveFollowsTheActions) {
  const Schedule schedule = Read("0F0,0I0,0W0\n");
  Costs costs = Uniform(schedule);
  costs.stages[0] = {1, 1, 1, 4, 1};
  const Timeline timeline = TimelineOf(schedule, costs);
  const MemoryCurve curve = MemoryOverTime(schedule, timeline, costs, 0);
  ASSERT_EQ(curve.size(), 3U);
  EXPECT_EQ(curve[0].amount, 4);
  EXPECT_EQ(curve[1].time, 2);
  EXPECT_EQ(curve[1].amount, 1);
  EXPECT_EQ(curve[2].time, 3);
  EXPECT_EQ(curve[2].amount, 0);
}

TEST(Memory, CurvesRiseToThePeakAndEndEmpty) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    RandomShape shape = DrawShape(4, random);
    shape.pairs = random() % 2 == 0;
    const Schedule schedule = RandomSchedule(shape, random);
    Costs costs = RandomCosts(shape.placement, random);
    for (StageCosts& stage : costs.stages)
      stage.forward += 0.1;  // otherwise a peak may have no duration
    const auto [result, timeline] = SimulateWithTimes(schedule, costs);
    const auto curves = MemoryOverTime(schedule, timeline, costs);
    for (std::size_t r = 0; r < curves.size(); ++r) {
      double peak = 0;
      for (std::size_t k = 0; k < curves[r].size(); ++k) {
        peak = std::max(peak, curves[r][k].amount);
        if (k > 0) {
          EXPECT_GT(curves[r][k].time, curves[r][k - 1].time);
        }
      }
      EXPECT_EQ(peak, result.ranks[r].peak_memory);
      EXPECT_EQ(curves[r].back().amount, 0);
    }
  }
}

}  // namespace
}  // namespace penstock
