// Uses Penstock's core with a custom schedule algorithm: generates and validates the schedule,
// compares it with 1F1B in the simulator, draws, lowers and saves it, and executes it on emulated
// devices.
#include <fmt/format.h>
#include <penstock/report/report.h>
#include <penstock/report/terminal.h>
#include <penstock/runtime/emulation/emulation.h>
#include <penstock/runtime/executor/run.h>
#include <penstock/schedule/passes/passes.h>
#include <penstock/schedule/text/text.h>
#include <penstock/schedule/validate/validate.h>
#include <penstock/simulate/simulate.h>

#include <memory>

#include "eager_1f1b.h"

namespace {

using namespace penstock;

constexpr double kForward = 1, kBackwardInput = 1, kBackwardWeight = 1;
constexpr double kTransfer = 0.5;

struct Priced {
  Schedule schedule;
  Costs costs;
  Timeline timeline;
  SimulationResult result;
};

Result<Priced> Price(const char* name) {
  ScheduleParams params;
  params.ranks = 4;
  params.microbatches = 12;
  Priced priced;
  PENSTOCK_TRY(priced.schedule, Generate(name, params));
  for (const Fault& fault : Validate(priced.schedule)) {
    return InvalidArgument("{}", Describe(priced.schedule, fault));
  }
  priced.costs = Costs::Uniform(priced.schedule.placement, 1, kForward, kBackwardInput,
                                kBackwardWeight, kTransfer);
  const SimulateOptions options{.timeline = &priced.timeline};
  PENSTOCK_TRY(priced.result, Simulate(priced.schedule, priced.costs, options));
  fmt::print("{}: makespan {}, peak memory {}\n", name, priced.result.makespan,
             priced.result.peak_memory);
  return priced;
}

// Executes the schedule with one thread per rank, which sleeps for the costs of its actions.
// Returns the measured makespan in units of cost.
Result<double> RunEmulated(const Priced& priced) {
  const EmulationOptions emulation{.unit = std::chrono::milliseconds(2)};
  Emulation machine(priced.schedule, priced.costs, emulation);
  PENSTOCK_TRY(Trace trace, Trace::Make(priced.schedule));
  RunOptions options;
  options.steps = 3;
  options.trace = &trace;
  options.transport = &machine.transport();
  PENSTOCK_TRY_STATUS(RunRanks(priced.schedule, machine.stages(), options));
  return MeasureRun(trace, 1).makespan / std::chrono::duration<double>(emulation.unit).count();
}

Status Tour() {
  PENSTOCK_TRY_STATUS(AddAlgorithm(Eager1f1b()));
  PENSTOCK_TRY(const Priced plain, Price("1f1b"));
  PENSTOCK_TRY(const Priced eager, Price("eager-1f1b"));
  if (eager.result.makespan >= plain.result.makespan) {
    return InvalidArgument("eager-1f1b is not faster, although transfers take time");
  }
  PENSTOCK_TRY(const std::string picture,
               RenderTerminal(eager.schedule, eager.timeline, {.width = 100}));
  fmt::print("\n{}\n", picture);

  // Writes a CSV that torch.distributed.pipelining's _load_csv reads, and a report.
  PENSTOCK_TRY_STATUS(SaveSchedule(AddCommunication(eager.schedule), "eager_1f1b.csv"));
  PENSTOCK_TRY(const Schedule loaded, LoadSchedule("eager_1f1b.csv"));
  if (!Validate(loaded).empty()) return InvalidArgument("the saved schedule is not valid");
  ReportInput page;
  page.title = "eager-1f1b";
  page.schedule = &eager.schedule;
  page.runs.push_back({"simulated", &eager.timeline, eager.result, {}, nullptr});
  PENSTOCK_TRY_STATUS(WriteReport(page, "eager_1f1b.html"));

  PENSTOCK_TRY(const double measured, RunEmulated(eager));
  fmt::print("emulated run: makespan {:.2f}, simulated {}\n", measured, eager.result.makespan);
  return {};
}

}  // namespace

int main() {
  const Status status = Tour();
  if (status) return 0;
  fmt::print(stderr, "own_schedule: {}\n", status.error().line());
  return 1;
}
