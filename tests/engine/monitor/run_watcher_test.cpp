#include "monitor/run_watcher.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>

#include "tests/engine/monitor/make_metrics.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

constexpr const char* kConfig =
    "name: \"a\"\nsteps: 10\nseconds: 0\nbatch: 2\nmodel:\n  sequence: 16\n  layers: 6\n"
    "pipeline:\n  schedule: \"1f1b\"\n  csv: \"\"\n  microbatches: 2\n  stage_layers: []\n";
constexpr const char* kSchedule =
    "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3B0,3F1,3B1\n";

std::string HolderText(int process) {
  std::array<char, 256> machine{};
  gethostname(machine.data(), machine.size() - 1);
  return fmt::format("process {} on {}", process, machine.data());
}

// Returns the id of a process that has ended.
int EndedProcess() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST(RunWatcher, FollowsARunFromBeforeItsStart) {
  const TempFolder folder;
  const std::string run = folder / "runs/a";
  RunWatcher watcher(run);
  EXPECT_EQ(watcher.Read()->state, RunState::kWaiting);
  folder.Write("runs/a/.lock", HolderText(getpid()));
  EXPECT_EQ(watcher.Read()->state, RunState::kWaiting);
  folder.Write("runs/a/config.yaml", kConfig);
  EXPECT_EQ(watcher.Read()->state, RunState::kStarting);
  folder.Write("runs/a/metrics.jsonl", MetricLine(MadeStep(0, {0.1, 0.1})));
  const auto status = ValueOf(watcher.Read());
  EXPECT_EQ(status.state, RunState::kRunning);
  EXPECT_EQ(status.run.name, "a");
  EXPECT_EQ(status.run.schedule, "1f1b");
  EXPECT_EQ(status.run.tokens_per_step, 2 * 2 * 16);
  EXPECT_EQ(status.done, 1);
  EXPECT_EQ(status.folder, run);
}

TEST(RunWatcher, TheLockOfAnEndedProcessDoesNotCount) {
  const TempFolder folder;
  folder.Write("config.yaml", kConfig);
  folder.Write(".lock", HolderText(EndedProcess()));
  folder.Write("metrics.jsonl", MetricLine(MadeStep(0, {})));
  RunWatcher watcher(folder.path());
  EXPECT_EQ(watcher.Read()->state, RunState::kStopped);
  const std::string metrics = folder / "metrics.jsonl";
  const auto written = std::filesystem::last_write_time(metrics);
  std::filesystem::last_write_time(metrics, written - std::chrono::hours(1));
  folder.Write(".lock", "process 1 on another-machine");
  EXPECT_EQ(watcher.Read()->state, RunState::kStarting);  // its line is of an earlier process
  folder.Write("metrics.jsonl", MetricLine(MadeStep(0, {})));
  EXPECT_EQ(watcher.Read()->state, RunState::kRunning);
}

TEST(RunWatcher, DerivesTheWorkOfEachRankFromTheSchedule) {
  const TempFolder folder;
  folder.Write("config.yaml", kConfig);
  folder.Write("schedule.csv", kSchedule);
  const auto description = ValueOf(ReadDescription(folder.path()));
  const std::vector<RankWork> expected = {{2, 1, 0}, {2, 0, 0}, {1, 0, 0}, {1, 0, 1}};
  EXPECT_EQ(description.work, expected);
  folder.Write("schedule.csv", "nonsense");
  EXPECT_TRUE(ReadDescription(folder.path())->work.empty());
}

TEST(RunWatcher, RefusesAConfigurationOfSomethingElse) {
  const TempFolder folder;
  for (const char* text : {"schedule: 1f1b\n", "steps: many\n", "- 1\n", "a: [\n", "steps: 3\n"}) {
    folder.Write("config.yaml", text);
    RunWatcher watcher(folder.path());
    const auto status = watcher.Read();
    ASSERT_FALSE(status) << text;
    EXPECT_NE(status.error().line().find("config.yaml"), std::string::npos);
    EXPECT_EQ(status.error().line().find('\n'), std::string::npos) << status.error().line();
  }
}

}  // namespace
}  // namespace penstock
