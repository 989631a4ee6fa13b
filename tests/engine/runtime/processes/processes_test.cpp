// RunRanks on several processes gives bitwise the results of one process, and ends all processes
// together.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "runtime/executor/run.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/engine/runtime/weight_stage.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr int kProcessSteps = 6;

struct ProcessesOutcome {
  std::vector<double> weights;  // by plane, then by stage
  std::map<std::int64_t, double> norms;
  std::vector<std::int64_t> rounds;  // by process
  std::vector<Status> status;        // by process
};

struct Job {
  UpdateRule rule = {};
  // `stage` counts on from plane to plane.
  WeightStage::Inject inject = {};
  int planes = 1;
  // By rank of all planes; empty: each process has about the same number of ranks.
  std::vector<int> process_of = {};
  std::int64_t steps = kProcessSteps;
  // Runs on each rank's thread after each of its steps.
  std::function<void(int process, int rank, std::int64_t step)> on_step = {};
  std::function<const std::atomic<bool>*(int process)> stop = {};
  std::chrono::milliseconds watchdog{60000};
};

// Runs the job. Each process has only the stages of its own ranks.
ProcessesOutcome RunOn(int processes, const Schedule& schedule, const Job& job) {
  const auto groups = MakeLocalProcesses(processes);
  ProcessesOutcome outcome;
  const int stages_of_all = schedule.stages() * job.planes;
  outcome.weights.resize(stages_of_all);
  outcome.rounds.resize(processes);
  outcome.status.resize(processes);
  std::mutex mutex;
  OnEachProcess(groups, [&](ProcessGroup& group) {
    const LocalRanks ranks =
        job.process_of.empty()
            ? LocalRanks::Split(schedule.ranks() * job.planes, processes, group.process()).value()
            : LocalRanks::Of(job.process_of, processes, group.process()).value();
    std::vector<std::unique_ptr<WeightStage>> owned;
    std::vector<Stage*> stages;
    for (int i = 0; i < stages_of_all; ++i) {
      const int stage = i % schedule.stages(), plane = i / schedule.stages();
      const bool here = ranks.has(schedule.placement.rank_of(stage) * job.planes + plane);
      const auto inject = [&job, i](int, std::int64_t step) {
        return job.inject ? job.inject(i, step) : 1;
      };
      owned.push_back(here ? std::make_unique<WeightStage>(schedule, stage, inject) : nullptr);
      stages.push_back(owned.back().get());
    }
    RunOptions options = {.steps = job.steps,
                          .watchdog = job.watchdog,
                          .stop = job.stop ? job.stop(group.process()) : nullptr,
                          .rounds_run = &outcome.rounds[group.process()],
                          .update = job.rule,
                          .planes = job.planes,
                          .ranks = &ranks,
                          .group = processes == 1 ? nullptr : &group};
    options.on_step = [&](int rank, std::int64_t step) {
      if (job.on_step) job.on_step(group.process(), rank, step);
    };
    options.on_verdict = [&](std::int64_t step, const Verdict& verdict) {
      const std::lock_guard<std::mutex> lock(mutex);
      outcome.norms[step] = verdict.apply ? verdict.norm : -1;
    };
    outcome.status[group.process()] = RunRanks(schedule, stages, options);
    for (std::size_t stage = 0; stage < owned.size(); ++stage) {
      if (owned[stage]) outcome.weights[stage] = owned[stage]->weight();
    }
  });
  return outcome;
}

void ExpectSame(const ProcessesOutcome& one, const ProcessesOutcome& other) {
  for (const ProcessesOutcome* outcome : {&one, &other}) {
    for (const Status& status : outcome->status) ASSERT_TRUE(status) << status.error().line();
  }
  EXPECT_EQ(one.weights, other.weights);
  EXPECT_EQ(one.norms, other.norms);
}

TEST(ProcessesTest, RandomSchedulesTrainBitwiseAsOnOneProcess) {
  Random random(41);
  for (int i = 0; i < 40; ++i) {
    const Schedule schedule = RandomSchedule(random);
    Job job;
    job.rule.clip = i % 3 == 0 ? 0 : 0.5;
    job.rule.skip_nonfinite = i % 3 == 1;
    job.rule.post_validation = i % 2 == 0;
    job.inject = [&](int stage, std::int64_t step) {
      return (stage + step + i) % 5 == 0 ? 1e3 : 1;
    };
    const ProcessesOutcome alone = RunOn(1, schedule, job);
    for (const int processes : {2, 3}) {
      if (processes <= schedule.ranks()) ExpectSame(RunOn(processes, schedule, job), alone);
    }
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
}

TEST(ProcessesTest, CatalogSchedulesTrainBitwiseAsOnOneProcess) {
  for (const char* name : {"1f1b", "interleaved", "zbv", "zb-h1", "dualpipe", "dualpipev"}) {
    const Schedule schedule = Generate(name, {.ranks = 4, .microbatches = 8}).value();
    for (const bool post_validation : {false, true}) {
      Job job = {.rule = {.clip = 0.05, .post_validation = post_validation}};
      ExpectSame(RunOn(4, schedule, job), RunOn(1, schedule, job));
      if (HasFailure()) FAIL() << name;
    }
  }
}

// Each plane computes other numbers, and its messages stay in it.
TEST(ProcessesTest, PlanesTrainBitwiseAsOnOneProcess) {
  for (const char* name : {"1f1b", "zbv"}) {
    const Schedule schedule = Generate(name, {.ranks = 2, .microbatches = 4}).value();
    Job job = {.rule = {.clip = 0.05, .post_validation = true}, .planes = 2};
    job.inject = [](int stage, std::int64_t step) { return 1 + 0.125 * (stage + 1) / (step + 1); };
    const ProcessesOutcome alone = RunOn(1, schedule, job);
    const std::vector<std::vector<int>> divisions = {
        {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 1, 0, 1}, {1, 0, 0, 1}, {0, 1, 1, 1}};
    for (const std::vector<int>& process_of : divisions) {
      job.process_of = process_of;
      ExpectSame(RunOn(*std::ranges::max_element(process_of) + 1, schedule, job), alone);
      if (HasFailure()) FAIL() << name << " " << fmt::format("{}", fmt::join(process_of, " "));
    }
  }
}

// The process that gets the request and the rank that is ahead are random.
TEST(ProcessesTest, StopOnOneProcessEndsAllProcessesAfterTheSameStep) {
  Random random(42);
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = RandomSchedule(random);
    const int processes = std::min(3, schedule.ranks());
    std::atomic<bool> stop{false};
    const int stopping = Uniform(random, 0, processes - 1);
    const int stop_step = Uniform(random, 0, 5);
    Job job = {.rule = {.clip = 0.5, .post_validation = i % 3 == 0},
               .steps = i % 2 == 0 ? stop_step + 1 : 1 << 30};
    job.stop = [&](int process) { return process == stopping ? &stop : nullptr; };
    job.on_step = [&](int process, int, std::int64_t step) {
      if (process == stopping && step == stop_step) stop.store(true);
    };
    const ProcessesOutcome stopped = RunOn(processes, schedule, job);
    for (const std::int64_t rounds : stopped.rounds) {
      EXPECT_EQ(rounds, stopped.rounds.front());
      EXPECT_GT(rounds, stop_step);
    }
    Job whole = job;
    whole.steps = stopped.rounds.front();
    whole.stop = nullptr;
    whole.on_step = nullptr;
    ExpectSame(stopped, RunOn(1, schedule, whole));
    if (HasFailure()) FAIL() << "schedule " << i << "\n" << WriteCsv(schedule);
  }
}

TEST(ProcessesTest, FailureOnOneProcessEndsAllProcessesWithItsReason) {
  const Schedule schedule = SmallGpipe(4, 2);
  for (const int failing : {0, 3}) {
    Job job;
    job.inject = [&](int stage, std::int64_t step) -> double {
      if (stage == failing && step == 2) throw std::runtime_error("out of paper");
      return 1;
    };
    const ProcessesOutcome outcome = RunOn(2, schedule, job);
    for (const Status& status : outcome.status) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().line(),
                fmt::format("rank {0} (process {1}): {0}B0: out of paper", failing, failing / 2));
    }
  }
}

TEST(ProcessesTest, AbortOfTheGroupEndsTheRanksOfEveryProcess) {
  const Schedule schedule = SmallGpipe(4, 2);
  const auto groups = MakeLocalProcesses(2);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    const LocalRanks ranks = LocalRanks::Split(4, 2, group.process()).value();
    Probes probes(schedule, [&](const Part& part, std::int64_t step) {
      if (part == Forward(3, 0).first && step == 3) {
        group.Abort({ErrorCode::kUnavailable, "disk full"});
      }
    });
    EXPECT_EQ(LineOf(RunRanks(schedule, probes.stages,
                              {.steps = std::int64_t{1} << 40, .ranks = &ranks, .group = &group})),
              "disk full");
  });
  EXPECT_EQ(live_payloads.load(), 0);
}

// The ranks of one process wait longer than the limit while the other process's ranks compute.
TEST(ProcessesTest, WaitingForAProgressingProcessIsNotAStandstill) {
  const Schedule schedule = SmallGpipe(2, 40);
  const auto groups = MakeLocalProcesses(2);
  OnEachProcess(groups, [&](ProcessGroup& group) {
    const LocalRanks ranks = LocalRanks::Split(2, 2, group.process()).value();
    Probes probes(schedule, [&](const Part& part, std::int64_t) {
      if (part.stage == 1) std::this_thread::sleep_for(std::chrono::milliseconds(15));
    });
    RunOptions options = {
        .watchdog = std::chrono::milliseconds(400), .ranks = &ranks, .group = &group};
    EXPECT_TRUE(Succeeds(RunRanks(schedule, probes.stages, options)));
  });
}

TEST(ProcessesTest, WatchdogNamesTheRanksOfAllProcesses) {
  const Schedule schedule = SmallGpipe(3, 2);
  const auto groups = MakeLocalProcesses(3);
  std::atomic<bool> release{false};
  OnEachProcess(groups, [&](ProcessGroup& group) {
    const LocalRanks ranks = LocalRanks::Split(3, 3, group.process()).value();
    Probes probes(schedule, [&](const Part& part, std::int64_t) {
      if (part == Forward(1, 1).first) release.wait(false);
    });
    RunOptions options = {.watchdog = std::chrono::milliseconds(600)};
    options.on_stuck = [&](const Error&) {
      release.store(true);
      release.notify_all();
    };
    options.ranks = &ranks;
    options.group = &group;
    const Status status = RunRanks(schedule, probes.stages, options);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kDeadlineExceeded);
    const std::string& message = status.error().line();
    EXPECT_TRUE(message.starts_with("no rank made progress for 0.6 s; rank 1 runs 1F1; "))
        << message;
    for (const char* waits :
         {"; rank 0 waits at 0B1 for the input gradient of stage 1, microbatch 1, from rank 1",
          "; rank 2 waits at 2F1 for the activation of stage 1, microbatch 1, from rank 1"}) {
      EXPECT_NE(message.find(waits), std::string::npos) << message;
    }
  });
}

}  // namespace
}  // namespace penstock
