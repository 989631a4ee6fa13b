#include "runtime/executor/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/program.h"
#include "schedule/passes/passes.h"
#include "schedule/validate/validate.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"

namespace penstock {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

void ExpectRunsAsWritten(const Schedule& schedule, int steps, const ProbeStage::Hook& hook) {
  Probes probes(schedule, hook);
  EXPECT_TRUE(Succeeds(RunRanks(schedule, probes.stages, {.steps = steps})));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const ProbeLog& log = probes.logs[rank];
    EXPECT_EQ(log.calls, ExpectedCalls(schedule, rank, steps));
    const Lane& lane = schedule.lanes[rank];
    const auto pairs = std::count_if(lane.begin(), lane.end(),
                                     [](const Action& action) { return action.is_pair(); });
    EXPECT_EQ(log.pairs, steps * pairs);
  }
  EXPECT_EQ(live_payloads.load(), 0);
}

// Delays one call in four by up to 0.2 ms, which perturbs the order of arrival.
void RandomDelay(const Part&, std::int64_t) {
  thread_local Random random(
      static_cast<unsigned>(std::hash<std::thread::id>()(std::this_thread::get_id())));
  if (Uniform(random, 0, 3) == 0) {
    std::this_thread::sleep_for(microseconds(Uniform(random, 0, 200)));
  }
}

TEST(RunTest, AnyValidScheduleRunsAsWritten) {
  Random random(11);
  for (int i = 0; i < 150; ++i) {
    const Schedule schedule = RandomSchedule(random);
    ASSERT_TRUE(Validate(schedule).empty()) << Describe(schedule, Validate(schedule).front());
    ExpectRunsAsWritten(schedule, Uniform(random, 1, 4), nullptr);
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
}

TEST(RunTest, AnyValidScheduleRunsUnderRandomDelays) {
  Random random(12);
  for (int i = 0; i < 30; ++i) {
    ExpectRunsAsWritten(RandomSchedule(random), 2, RandomDelay);
    if (HasFailure()) FAIL() << "schedule " << i;
  }
}

TEST(RunTest, LoweredSchedulesMakeTheSameCalls) {
  Random random(13);
  for (int i = 0; i < 30; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const Schedule lowered = AddCommunication(schedule);
    Probes probes(lowered);
    EXPECT_TRUE(Succeeds(RunRanks(lowered, probes.stages)));
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      EXPECT_EQ(probes.logs[rank].calls, ExpectedCalls(schedule, rank, 1));
    }
  }
}

TEST(RunTest, RunsSixtyFourRanksOnFewCores) {
  Random random(14);
  RandomScheduleOptions options = {.max_stages_per_rank = 2, .max_microbatches = 4};
  Schedule schedule;
  for (options.max_ranks = 64; schedule.ranks() < 48;) schedule = RandomSchedule(random, options);
  ExpectRunsAsWritten(schedule, 3, RandomDelay);
  ExpectRunsAsWritten(SmallGpipe(64, 8), 3, nullptr);
}

TEST(RunTest, HooksRunOnTheRanksThreadInOrder) {
  const Schedule schedule = SmallGpipe(3, 2);
  std::atomic<std::int64_t> first_seen{100};
  Probes probes(schedule, [&](const Part&, std::int64_t step) {
    if (step < first_seen.load()) first_seen.store(step);
  });
  std::mutex mutex;
  std::vector<std::thread::id> threads(3);
  std::vector<std::vector<std::int64_t>> steps(3);
  RunOptions options = {.steps = 4, .first_step = 7};
  options.on_thread_start = [&](int rank) {
    const std::lock_guard<std::mutex> lock(mutex);
    threads[rank] = std::this_thread::get_id();
  };
  options.on_step = [&](int rank, std::int64_t step) {
    const std::lock_guard<std::mutex> lock(mutex);
    EXPECT_EQ(threads[rank], std::this_thread::get_id());
    steps[rank].push_back(step);
  };
  ASSERT_TRUE(RunRanks(schedule, probes.stages, options));
  for (const auto& seen : steps) EXPECT_EQ(seen, (std::vector<std::int64_t>{7, 8, 9, 10}));
  EXPECT_EQ(first_seen.load(), 7);
  EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), 3U);
}

// Each plane runs all lanes. A failure of one ends all, and `stop` ends all after one step.
TEST(RunTest, PlanesRunTheScheduleSideBySide) {
  const Schedule schedule = SmallGpipe(2, 2);
  std::atomic<bool> fails{false}, stop{false};
  const auto hook = [&](const Part& part, std::int64_t) {
    if (fails && part.op == Op::kBackward) throw std::runtime_error("no");
  };
  Probes first(schedule, nullptr), second(schedule, hook);
  std::vector<Stage*> stages = first.stages;
  stages.insert(stages.end(), second.stages.begin(), second.stages.end());
  std::mutex mutex;
  std::map<int, int> steps;  // by number of the rank
  RunOptions options = {.steps = 3, .stop = &stop};
  options.planes = 2;
  options.on_step = [&](int rank, std::int64_t) {
    const std::lock_guard<std::mutex> lock(mutex);
    ++steps[rank];
  };
  ASSERT_TRUE(Succeeds(RunRanks(schedule, stages, options)));
  EXPECT_EQ(steps, (std::map<int, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    EXPECT_EQ(first.logs[rank].calls, ExpectedCalls(schedule, rank, 3));
    EXPECT_EQ(second.logs[rank].calls, ExpectedCalls(schedule, rank, 3));
  }
  options.first_step = 3;
  options.steps = 1 << 20;
  options.on_step = [&](int, std::int64_t) { stop = true; };
  std::int64_t rounds = 0;
  options.rounds_run = &rounds;
  ASSERT_TRUE(Succeeds(RunRanks(schedule, stages, options)));
  EXPECT_LT(rounds, 1 << 20);
  options.first_step += rounds;
  stop = false;
  fails = true;
  EXPECT_TRUE(Contains(LineOf(RunRanks(schedule, stages, options)), "rank 3: 1B"));
  options.planes = 3;
  EXPECT_TRUE(Contains(LineOf(RunRanks(schedule, stages, options)), "in 3 planes"));
}

TEST(RunTest, ThrowingStageFailsTheRunAndIsNamed) {
  Random random(15);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const int rank = Uniform(random, 0, schedule.ranks() - 1);
    const Program program = MakeProgram(schedule, rank).value();
    const ProgramEntry& entry = program[random() % program.size()];
    const Part guilty = entry.part;
    const Lane& lane = schedule.lanes[rank];
    const std::string action = entry.position < 0 ? ToText(guilty) : ToText(lane[entry.position]);
    Probes probes(schedule, [&](const Part& part, std::int64_t step) {
      if (part == guilty && step == 1) throw std::runtime_error("out of paper\n and a trace");
    });
    EXPECT_TRUE(FailsWith(RunRanks(schedule, probes.stages, {.steps = 3}), ErrorCode::kUnavailable,
                          fmt::format("rank {}: {}: out of paper", rank, action)));
    EXPECT_EQ(live_payloads.load(), 0);
  }
}

// For any exception of a stage, the message names the rank and the action, and no message leaks.
TEST(RunTest, EveryExceptionBecomesOneLineThatNamesItsAction) {
  const Schedule schedule = SmallGpipe(3, 4);
  const auto run = [&](const std::function<void()>& fail) {
    Probes probes(schedule, [&](const Part& part, std::int64_t) {
      if (part == Backward(1, 2).first) fail();
    });
    return RunRanks(schedule, probes.stages).error();
  };
  const Error memory = run([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, ErrorCode::kUnavailable);
  EXPECT_EQ(
      memory.message,
      "rank 1: 1B2: out of memory; use a smaller model, batch or sequence, or a schedule that "
      "needs less memory");
  const Error bug = run([] { PENSTOCK_CHECK(1 + 1 == 3, "sums"); });
  EXPECT_EQ(bug.code, ErrorCode::kInternal);
  EXPECT_EQ(bug.message.rfind("rank 1: 1B2: ", 0), 0U) << bug.message;
  EXPECT_EQ(run([] { throw 7; }).message, "rank 1: 1B2: an exception that is not a std::exception");
  EXPECT_EQ(live_payloads.load(), 0);
}

// All ranks fail. One failure is reported and no rank waits for another.
TEST(RunTest, ReportsOneOfSeveralFailures) {
  const Schedule schedule = SmallGpipe(4, 4);
  Probes probes(schedule, [](const Part& part, std::int64_t) {
    if (part.op == Op::kStep) throw std::runtime_error("no paper");
  });
  const Status status = RunRanks(schedule, probes.stages);
  ASSERT_FALSE(status);
  const char rank = status.error().line().at(5);
  EXPECT_EQ(status.error().line(), fmt::format("rank {}: {}STEP: no paper", rank, rank));
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST(RunTest, ThrowingHookFailsTheRun) {
  const Schedule schedule = SmallGpipe(2, 2);
  for (const bool at_start : {true, false}) {
    Probes probes(schedule);
    RunOptions options = {.steps = 3};
    const auto fail = [](int rank) {
      if (rank == 1) throw std::runtime_error("no disk");
    };
    if (at_start) options.on_thread_start = fail;
    if (!at_start) options.on_step = [&](int rank, std::int64_t) { fail(rank); };
    EXPECT_EQ(
        LineOf(RunRanks(schedule, probes.stages, options)),
        at_start ? "rank 1: before its first step: no disk" : "rank 1: after a step: no disk");
  }
}

// The stage waits until the watchdog reports the standstill.
TEST(RunTest, WatchdogNamesRunningAndWaitingRanks) {
  const Schedule schedule = SmallGpipe(3, 2);
  std::atomic<bool> release{false};
  Probes probes(schedule, [&](const Part& part, std::int64_t) {
    if (part == Forward(1, 1).first) release.wait(false);
  });
  RunOptions options = {.watchdog = milliseconds(300)};
  Error reported;
  options.on_stuck = [&](const Error& reason) {
    reported = reason;
    release.store(true);
    release.notify_all();
  };
  const Status status = RunRanks(schedule, probes.stages, options);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(status.error().line(),
            "no rank made progress for 0.3 s; rank 1 runs 1F1"
            "; rank 0 waits at 0B1 for the input gradient of stage 1, microbatch 1, from rank 1"
            "; rank 2 waits at 2F1 for the activation of stage 1, microbatch 1, from rank 1");
  EXPECT_EQ(reported.message, status.error().line());
  EXPECT_EQ(live_payloads.load(), 0);
}

// The watchdog also names a stage that waits for its own transfers.
TEST(RunTest, WatchdogNamesAStageThatWaits) {
  class Waiting final : public ProbeStage {
   public:
    using ProbeStage::ProbeStage;
    [[nodiscard]] bool Await(Op op, int) override {
      if (op == Op::kBackward) release.wait(false);
      return !release.load();
    }
    std::atomic<bool> release{false};
  };
  const Schedule schedule = SmallGpipe(2, 1);
  Probes probes(schedule);
  ProbeLog log;
  Waiting waiting(schedule.placement, 1, &log, nullptr);
  probes.stages[1] = &waiting;
  RunOptions options = {.watchdog = milliseconds(300)};
  options.on_stuck = [&](const Error&) {
    waiting.release.store(true);
    waiting.release.notify_all();
  };
  EXPECT_EQ(LineOf(RunRanks(schedule, probes.stages, options)),
            "no rank made progress for 0.3 s"
            "; rank 0 waits at 0B0 for the input gradient of stage 1, microbatch 0, from rank 1"
            "; rank 1 waits at 1B0 for transfers of its own stage");
  EXPECT_EQ(live_payloads.load(), 0);
}

// Each action is far shorter than the limit, and all together take longer than it.
TEST(RunTest, WatchdogIgnoresASlowRun) {
  const Schedule schedule = SmallGpipe(1, 8);
  Probes probes(schedule,
                [](const Part&, std::int64_t) { std::this_thread::sleep_for(milliseconds(15)); });
  EXPECT_TRUE(
      Succeeds(RunRanks(schedule, probes.stages, {.steps = 2, .watchdog = milliseconds(400)})));
}

TEST(RunTest, CancellationStopsAllRanks) {
  const Schedule schedule = SmallGpipe(4, 2);
  std::atomic<bool> cancel{false};
  Probes probes(schedule, [&](const Part&, std::int64_t step) {
    if (step == 5) cancel.store(true);
  });
  EXPECT_EQ(LineOf(RunRanks(schedule, probes.stages,
                            {.steps = std::int64_t{1} << 40, .cancel = &cancel})),
            "stopped on request");
  EXPECT_EQ(live_payloads.load(), 0);
}

TEST(RunTest, StopEndsAllRanksAfterTheSameStep) {
  Random random(14);
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = RandomSchedule(random);
    std::atomic<bool> stop{false};
    const int last = Uniform(random, 0, 9);
    Probes probes(schedule, [&](const Part&, std::int64_t step) {
      if (step == last) stop.store(true);
    });
    std::int64_t steps = -1;
    EXPECT_TRUE(
        Succeeds(RunRanks(schedule, probes.stages,
                          {.steps = std::int64_t{1} << 40, .stop = &stop, .rounds_run = &steps})));
    ASSERT_GT(steps, last);
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      EXPECT_EQ(probes.logs[rank].calls, ExpectedCalls(schedule, rank, static_cast<int>(steps)));
    }
    EXPECT_EQ(live_payloads.load(), 0);
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
}

TEST(RunTest, RefusesBadInputBeforeAnythingRuns) {
  const Schedule schedule = SmallGpipe(2, 2);
  Probes probes(schedule);
  Schedule invalid = schedule;
  std::swap(invalid.lanes[0].front(), invalid.lanes[0].back());
  std::vector<Stage*> missing = probes.stages;
  missing[1] = nullptr;
  std::vector<Stage*> few = {probes.stages[0]};
  const std::vector<Status> refused = {
      RunRanks(invalid, probes.stages), RunRanks(schedule, missing), RunRanks(schedule, few),
      RunRanks(schedule, probes.stages, {.watchdog = milliseconds(0)}),
      RunRanks(schedule, probes.stages, {.steps = -1})};
  for (const Status& status : refused) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument) << status.error().line();
  }
  for (const ProbeLog& log : probes.logs) EXPECT_TRUE(log.calls.empty());
}

TEST(RunTest, PinsThreadsOrReportsThatItCannot) {
  const Schedule schedule = SmallGpipe(2, 1);
  Probes probes(schedule);
  RunOptions options = {.cpus = {0}};
  EXPECT_TRUE(RunRanks(schedule, probes.stages, options));
  Probes again(schedule);
  options.cpus = {-1};
  EXPECT_TRUE(
      Refused(RunRanks(schedule, again.stages, options), "cannot pin the thread to CPU -1"));
}

TEST(RunTest, ZeroStepsRunNothing) {
  const Schedule schedule = SmallGpipe(2, 1);
  Probes probes(schedule);
  EXPECT_TRUE(RunRanks(schedule, probes.stages, {.steps = 0}));
  EXPECT_TRUE(probes.logs[0].calls.empty());
}

}  // namespace
}  // namespace penstock
