// Weight versions: how many a stage keeps, and schedules that stream over several steps.
#include "runtime/versions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/program.h"
#include "schedule/catalog.h"
#include "simulate/memory/kept_versions.h"
#include "tests/results.h"

namespace penstock {
namespace {

Schedule Streamed(const std::string& name, int ranks, int microbatches, int steps) {
  return Generate(name, {.ranks = ranks, .microbatches = microbatches, .steps = steps}).value();
}

TEST(VersionsTest, PipeDreamKeepsOneOlderVersionPerDownstreamStage) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    const Schedule schedule = Streamed("pipedream", ranks, 3, 4);
    for (int stage = 0; stage < ranks; ++stage) {
      const StageVersions rule = VersionsOf(schedule, stage).value();
      EXPECT_EQ(rule.older + 1, ranks - stage);
      EXPECT_EQ(rule.microbatches_per_update, 1);
    }
  }
}

TEST(VersionsTest, DoubleBufferingKeepsTwoVersions) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int microbatches = ranks; microbatches <= ranks + 3; ++microbatches) {
      const Schedule schedule = Streamed("pipedream-2bw", ranks, microbatches, 4);
      for (int stage = 0; stage < ranks; ++stage) {
        const StageVersions rule = VersionsOf(schedule, stage).value();
        EXPECT_EQ(rule.older + 1, 2);
        EXPECT_EQ(rule.VersionOf(2 * microbatches), 1);
      }
    }
  }
}

TEST(VersionsTest, FlushedSchedulesKeepOnlyTheNewestVersion) {
  for (const char* name : {"1f1b", "zbv", "dualpipe"}) {
    const Schedule schedule = Streamed(name, 2, 8, 1);
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      EXPECT_EQ(VersionsOf(schedule, stage)->older, 0);
    }
  }
}

// What the simulator prices (simulate/memory/kept_versions.h).
TEST(VersionsTest, TheSimulatorKeepsAsManyOlderVersions) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const Schedule schedule = Streamed(name, ranks, 6, 4);
      for (int stage = 0; stage < ranks; ++stage) {
        int kept = 0, most = 0;
        for (const VersionChange& change : VersionChanges(schedule, stage)) {
          kept += change.versions;
          most = std::max(most, kept);
        }
        EXPECT_EQ(most, VersionsOf(schedule, stage)->older) << name << " stage " << stage;
      }
    }
  }
}

// With fewer microbatches than ranks, a third version is read while the second is computed.
TEST(VersionsTest, CountsTheVersionsThatLanesRead) {
  Schedule schedule = Streamed("pipedream", 3, 2, 4);
  schedule.weights = WeightPolicy::kDoubleBuffered;
  for (Lane& lane : schedule.lanes) {
    int made = 0;
    std::erase_if(lane, [&](const Action& action) {
      return action.first.op == Op::kStep && ++made % 2 == 1;
    });
  }
  EXPECT_EQ(VersionsOf(schedule, 0)->older, 1);
  // A forward of step 2 that runs at the end of the lane keeps more old versions alive.
  Lane& lane = schedule.lanes[0];
  const auto late = std::find(lane.begin(), lane.end(), Forward(0, 4));
  ASSERT_NE(late, lane.end());
  lane.erase(late);
  lane.push_back(Forward(0, 4));
  EXPECT_EQ(VersionsOf(schedule, 0)->older, 3);
}

TEST(VersionsTest, RefusesMissingAndLateSteps) {
  Schedule missing = Streamed("pipedream-2bw", 2, 2, 3);
  missing.lanes[1].pop_back();
  EXPECT_TRUE(VersionsOf(missing, 0));
  ASSERT_FALSE(VersionsOf(missing, 1));
  EXPECT_NE(VersionsOf(missing, 1).error().line().find("STEP"), std::string::npos);

  Schedule early = Streamed("pipedream-2bw", 2, 2, 3);
  Lane& lane = early.lanes[1];
  const auto step = std::find(lane.begin(), lane.end(), MakeAction(Op::kStep, 1));
  std::rotate(step, step + 1, step + 3);  // after the next forward and backward
  EXPECT_TRUE(Refused(VersionsOf(early, 1), "", ErrorCode::kInvalidArgument));
}

// Every rank but the last one, which has nothing to wait for, begins the forwards of the next step
// before the last backward of a step.
TEST(VersionsTest, StreamedSchedulesDoNotDrainBetweenSteps) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    const int microbatches = 6;
    const int steps = 5;
    const Schedule schedule = Streamed(name, 4, microbatches, steps);
    for (int rank = 0; rank + 1 < schedule.ranks(); ++rank) {
      const Program program = MakeProgram(schedule, rank).value();
      std::map<std::pair<Op, int>, std::size_t> at;
      for (std::size_t i = 0; i < program.size(); ++i) {
        at[{program[i].part.op, program[i].part.microbatch}] = i;
      }
      for (int step = 0; step + 1 < steps; ++step) {
        const int next = (step + 1) * microbatches;
        EXPECT_LT(at.at({Op::kForward, next}), at.at({Op::kBackward, next - 1}));
      }
    }
  }
}

}  // namespace
}  // namespace penstock
