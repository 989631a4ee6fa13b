// Measures the overhead of the executor and the threads transport: the stages do nothing.
//
// Microseconds per action (F or B), medians over runs that alternate between the cases:
//   wall  wall time, times the cores that the ranks can use, per action of all ranks. It
//         includes every wait for a message and, with more ranks than cores, the thread switches
//   cpu   CPU time of all threads per action
//
//   executor_speed [RUNS]   runs per case (default 15)
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "tests/engine/runtime/empty_stage.h"

namespace penstock {
namespace {

constexpr int kMicrobatches = 64;
constexpr int kSteps = 200;  // per run, so that starting threads is negligible
constexpr int kRuns = 15;    // per case by default

double CpuMicros() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

struct Case {
  std::string algorithm;
  int ranks;
  std::vector<double> wall = {};  // microseconds per action, one entry per run
  std::vector<double> cpu = {};
};

Status RunOnce(Case& c) {
  ScheduleParams params;
  params.ranks = c.ranks;
  params.microbatches = kMicrobatches;
  PENSTOCK_TRY(const Schedule schedule, Generate(c.algorithm, params));
  std::vector<EmptyStage> empty(schedule.stages());
  std::vector<Stage*> stages;
  for (EmptyStage& stage : empty) stages.push_back(&stage);
  RunOptions options;
  options.steps = kSteps;
  const double cpu = CpuMicros();
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_TRY_STATUS(RunRanks(schedule, stages, options));
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
  const double cores = std::min<double>(c.ranks, std::thread::hardware_concurrency());
  const double actions = static_cast<double>(schedule.action_count()) * kSteps;
  c.wall.push_back(wall.count() * cores / actions);
  c.cpu.push_back((CpuMicros() - cpu) / actions);
  return {};
}

int Main(int runs) {
  std::vector<Case> cases = {{"gpipe", 1}, {"gpipe", 2}, {"gpipe", 8}, {"1f1b", 2}, {"1f1b", 8}};
  for (int run = 0; run < runs; ++run) {
    for (Case& c : cases) {
      if (const Status status = RunOnce(c); !status) {
        fmt::print(stderr, "executor_speed: {}\n", status.error().line());
        return 1;
      }
    }
  }
  fmt::print("Executor and transport alone, microseconds per action, {} microbatches\n",
             kMicrobatches);
  fmt::print("{:<10} {:>5} {:>12} {:>9} {:>9}\n", "schedule", "ranks", "wall median", "best",
             "cpu");
  for (Case& c : cases) {
    std::sort(c.wall.begin(), c.wall.end());
    std::sort(c.cpu.begin(), c.cpu.end());
    fmt::print("{:<10} {:>5} {:>12.3f} {:>9.3f} {:>9.3f}\n", c.algorithm, c.ranks,
               c.wall[c.wall.size() / 2], c.wall.front(), c.cpu[c.cpu.size() / 2]);
  }
  return 0;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : penstock::kRuns;
  return penstock::Main(std::max(1, runs));
}
