#include "emulated/emulated_run.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.h"
#include "base/system/machine_load.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "runtime/emulation/emulation.h"
#include "runtime/executor/run.h"
#include "runtime/measure/drift.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

// Emulated bytes per activation if memory is not in bytes: fine enough for parts of activations.
constexpr double kFineBytes = 1 << 30;
// Times in nanoseconds and memory in bytes must fit into 64-bit integers.
constexpr double kLongestRun = 1e9;  // seconds
constexpr double kMostBytes = 1e18;

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// In units of cost; 0 if no action takes time.
double ShortestAction(const Schedule& schedule, const Costs& costs) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      const double duration = costs.Duration(action);
      if (OccupiesRank(action.first.op) && duration > 0) shortest = std::min(shortest, duration);
    }
  }
  return std::isfinite(shortest) ? shortest : 0;
}

// The figures of the trace in units of cost.
SimulationResult Measure(const Trace& trace, const Emulation& machine, double unit, double bytes) {
  const Schedule& schedule = trace.schedule();
  Timeline timeline = MeasuredTimeline(trace, 0);
  const double first = 1e-9 * static_cast<double>(RoundOrigin(trace, 0) - machine.start());
  for (std::vector<Span>& lane : timeline.spans) {
    for (Span& span : lane) span = {(first + span.start) / unit, (first + span.end) / unit};
  }
  SimulationResult result = Summarize(schedule, timeline);
  // Stamps of a transfer say when its rank has started it.
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    double& last_end = result.ranks[rank].last_end;
    last_end = std::max(last_end, machine.LastTransferEnd(rank));
  }
  FillTotals(schedule, result);
  result.peak_memory = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    double& peak = result.ranks[rank].peak_memory;
    peak = static_cast<double>(machine.PeakBytes(rank)) / bytes;
    result.peak_memory = std::max(result.peak_memory, peak);
  }
  result.messages = Index(machine.messages());
  return result;
}

Status CheckFits(const SimulationResult& predicted, double unit, double bytes) {
  if (predicted.makespan * unit > kLongestRun) {
    return InvalidParameter("run", "would take {}: give a smaller `unit`",
                            FormatSeconds(predicted.makespan * unit));
  }
  if (predicted.peak_memory * bytes > kMostBytes) {
    return InvalidParameter("run", "cannot emulate that much memory on a rank: {:.6g} activations",
                            predicted.peak_memory);
  }
  return {};
}

Result<EmulatedRun> RunOne(const Simulated& simulated, double unit,
                           const std::atomic<bool>& cancel) {
  const Schedule& schedule = simulated.chosen.schedule;
  const Costs& costs = simulated.chosen.costs;
  EmulationOptions options;
  options.unit = std::chrono::nanoseconds(std::llround(unit * 1e9));
  options.activation_bytes = simulated.chosen.memory_unit.empty() ? kFineBytes : 1;
  PENSTOCK_TRY_STATUS(CheckFits(simulated.result, unit, options.activation_bytes));
  Emulation machine(schedule, costs, options);
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule, 1));
  RunOptions run;
  run.trace = &trace;
  run.transport = &machine.transport();
  run.cancel = &cancel;
  // Emulated actions end by themselves: only one that takes far longer than planned is stuck.
  const double longest = simulated.result.makespan * unit;
  run.watchdog += std::chrono::milliseconds(std::llround(std::min(longest, 1e6) * 1e3));
  const double cpu = CpuSeconds();
  PENSTOCK_TRY_STATUS(RunRanks(schedule, machine.stages(), run));
  EmulatedRun result;
  result.cpu = CpuSeconds() - cpu;
  result.measured = Measure(trace, machine, unit, options.activation_bytes);
  result.unit = unit;
  result.makespan = result.measured.makespan * unit;
  result.shortest = ShortestAction(schedule, costs) * unit;
  result.lateness = std::chrono::duration<double>(machine.worst_lateness()).count();
  Costs in_seconds = costs;
  in_seconds.ScaleTimes(unit);
  result.drift = DriftText(FindDrift(trace, in_seconds));
  return result;
}

}  // namespace

Result<double> ParseRunUnit(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  for (const auto& [name, seconds] : kUnits) {
    if (!text.ends_with(name)) continue;
    const auto count = ParseNumber(std::string(text.substr(0, text.size() - name.size())));
    if (!count) continue;
    if (*count > 0 && *count * seconds <= kLongestRun) return *count * seconds;
    return InvalidParameter("unit", "{}: give more than 0 s and at most {} s", Quote(text),
                            kLongestRun);
  }
  return InvalidParameter("unit", "{}: give a time with its unit (5ms, 200us, 1s)", Quote(text));
}

Status RequireOneLatency(std::string_view parameter, const Simulated& simulated) {
  const Costs& costs = simulated.chosen.costs;
  if (costs.offload_sharing > 1) {
    return InvalidParameter(parameter,
                            ": in {} each rank has its own link; leave `offload_sharing` out",
                            simulated.chosen.label);
  }
  if (costs.topology.empty() && costs.transfers == Transfers::kAsynchronous) return {};
  return InvalidParameter(parameter,
                          ": {} has one latency for all messages; leave `topology` and "
                          "`transfers` out and give `comm`",
                          simulated.chosen.label);
}

Result<std::vector<EmulatedRun>> RunEmulated(const std::vector<Simulated>& all,
                                             std::optional<std::string_view> unit,
                                             const std::atomic<bool>& cancel) {
  PENSTOCK_TRY(const double seconds, ParseRunUnit(unit.value_or(kDefaultRunUnit)));
  const std::string busy = BusyMachine();
  std::vector<EmulatedRun> runs;
  for (const Simulated& simulated : all) {
    PENSTOCK_TRY_STATUS(RequireOneLatency("run", simulated));
    // The costs of a model are in seconds.
    const bool in_seconds = !unit && simulated.chosen.time_unit == "s";
    auto run = RunOne(simulated, in_seconds ? 1 : seconds, cancel);
    if (!run) return tl::unexpected(In(simulated.chosen.label, std::move(run).error()));
    runs.push_back(*std::move(run));
    runs.back().busy = busy;
  }
  return runs;
}

}  // namespace penstock
