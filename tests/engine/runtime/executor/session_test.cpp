#include "runtime/executor/session.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/processes/local_ranks.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"

namespace penstock {
namespace {

using std::chrono::milliseconds;

TEST(RunSessionTest, StepsRunAnyScheduleAsWrittenAndAreComplete) {
  Random random(31);
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = RandomSchedule(random);
    Probes probes(schedule);
    Trace trace = Trace::Make(schedule, 1).value();
    RunOptions options = {.first_step = 7, .trace = &trace};
    RunSession session(schedule, probes.stages, options);
    for (int step = 1; step <= 4; ++step) {
      EXPECT_TRUE(Succeeds(session.Step()));
      for (int rank = 0; rank < schedule.ranks(); ++rank) {
        ASSERT_EQ(probes.logs[rank].calls, ExpectedCalls(schedule, rank, step));
      }
      EXPECT_EQ(trace.last_round(), step);
    }
    session.Begin(3);
    ASSERT_TRUE(session.End());
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      ASSERT_EQ(probes.logs[rank].calls, ExpectedCalls(schedule, rank, 7));
    }
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST(RunSessionTest, EndsWithoutAStep) {
  const Schedule schedule = SmallGpipe(3, 2);
  Probes probes(schedule);
  { const RunSession session(schedule, probes.stages, {}); }
  EXPECT_TRUE(probes.logs[0].calls.empty());
}

TEST(RunSessionTest, FailedStepReportsTheStageAndLaterStepsFail) {
  const Schedule schedule = SmallGpipe(2, 3);
  Probes probes(schedule, [](const Part& part, std::int64_t step) {
    if (part == Forward(1, 2).first && step == 1) throw std::runtime_error("out of paper");
  });
  RunSession session(schedule, probes.stages, {});
  EXPECT_TRUE(session.Step());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(LineOf(session.Step()), "rank 1: 1F2: out of paper");
  }
}

TEST(RunSessionTest, RefusesBadInput) {
  const Schedule schedule = SmallGpipe(2, 3);
  Probes probes(schedule);
  probes.stages[1] = nullptr;
  RunSession session(schedule, probes.stages, {});
  EXPECT_TRUE(Refused(session.Step(), "", ErrorCode::kInvalidArgument));
}

TEST(RunSessionTest, InterruptionEndsAStep) {
  const Schedule schedule = SmallGpipe(2, 1);
  std::atomic<bool> asked{false};
  Probes probes(schedule, [&](const Part&, std::int64_t) { asked.wait(false); });
  RunSession session(schedule, probes.stages, {});
  const Status status = session.Step([&] {
    asked.store(true);
    asked.notify_all();
    return true;
  });
  // The ranks may have ended the step before they saw the interruption.
  if (!status) {
    EXPECT_EQ(status.error().line(), "stopped on request");
  }
}

TEST(RunSessionTest, TimeBetweenStepsIsNotAStandstill) {
  const Schedule schedule = SmallGpipe(2, 2);
  Probes probes(schedule);
  RunOptions options = {.watchdog = milliseconds(100)};
  RunSession session(schedule, probes.stages, options);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Succeeds(session.Step()));
    std::this_thread::sleep_for(milliseconds(250));
  }
}

TEST(RunSessionTest, ProcessesRunTheSameStepsUntilOneEndsItsSession) {
  const Schedule schedule = SmallGpipe(4, 3);
  const auto groups = MakeLocalProcesses(2);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    const LocalRanks ranks = LocalRanks::Split(4, 2, group.process()).value();
    Probes probes(schedule);
    RunOptions options = {.ranks = &ranks, .group = &group};
    RunSession session(schedule, probes.stages, options);
    for (int step = 0; step < 20; ++step) {
      EXPECT_TRUE(Succeeds(session.Step()));
    }
    if (group.process() == 0) return;
    EXPECT_EQ(LineOf(session.Step()), "another process has ended the session");
  });
  EXPECT_EQ(live_payloads.load(), 0);
}

}  // namespace
}  // namespace penstock
