// Measures the overhead of the executor and the transport between processes, one rank each: the
// stages do nothing.
//
//   mpirun -n RANKS process_speed [RUNS]   the processes of an MPI job; runs per schedule (default
//   9) process_speed [RUNS] tcp               two processes connected by TCP
//
// Prints microseconds of wall time, times the ranks, per action (F or B) of all ranks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "bench/bench_processes.h"
#include "runtime/executor/run.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/catalog.h"
#include "tests/engine/runtime/empty_stage.h"

namespace penstock {
namespace {

constexpr int kMicrobatches = 64;
constexpr int kSteps = 200;  // per run, so that starting threads is negligible
constexpr int kRuns = 9;

Result<double> MicrosPerAction(const char* algorithm, ProcessGroup& group) {
  ScheduleParams params;
  params.ranks = group.processes();
  params.microbatches = kMicrobatches;
  PENSTOCK_TRY(const Schedule schedule, Generate(algorithm, params));
  const LocalRanks ranks =
      LocalRanks::Split(params.ranks, group.processes(), group.process()).value();
  std::vector<EmptyStage> empty(schedule.stages());
  std::vector<Stage*> stages;
  for (EmptyStage& stage : empty) stages.push_back(&stage);
  RunOptions options;
  options.steps = kSteps;
  options.ranks = &ranks;
  options.group = &group;
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_TRY_STATUS(RunRanks(schedule, stages, options));
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
  return wall.count() * params.ranks / (static_cast<double>(schedule.action_count()) * kSteps);
}

Status Measure(int runs, std::string_view connected_by) {
  PENSTOCK_TRY(const std::unique_ptr<ProcessGroup> group, OpenBenchProcesses(connected_by, 2));
  const bool prints = group->process() == 0;
  for (const char* const algorithm : {"gpipe", "1f1b"}) {
    std::vector<double> micros;
    for (int run = 0; run < runs; ++run) {
      PENSTOCK_TRY(micros.emplace_back(), MicrosPerAction(algorithm, *group));
    }
    std::sort(micros.begin(), micros.end());
    if (prints) {
      fmt::print("{:<6} {} processes: {:.2f} us per action (best {:.2f})\n", algorithm,
                 group->processes(), micros[micros.size() / 2], micros.front());
    }
  }
  group->Leave();
  return {};
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::atoi(argv[1]) : penstock::kRuns;
  const penstock::Status status = penstock::Measure(std::max(1, runs), argc > 2 ? argv[2] : "mpi");
  if (status) return 0;
  fmt::print(stderr, "process_speed: {}\n", status.error().line());
  return 1;
}
