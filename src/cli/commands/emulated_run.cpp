#include "cli/commands/emulated_run.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/index.h"
#include "base/system/machine_load.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/units.h"
#include "cli/options/option_values.h"
#include "cli/signals/interrupt.h"
#include "runtime/emulation/emulation.h"
#include "runtime/executor/run.h"
#include "runtime/measure/drift.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

// For shorter actions, the time to wake up a thread is not negligible.
constexpr double kShortestAction = 1e-3;
// Emulated bytes per activation if memory is not in bytes: fine enough for parts of activations.
constexpr double kFineBytes = 1 << 30;
constexpr const char* kDefaultUnit = "5ms";
// Times in nanoseconds and memory in bytes must fit into 64-bit integers.
constexpr double kLongestRun = 1e9;  // seconds
constexpr double kMostBytes = 1e18;

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Returns the costs in seconds.
Costs Scaled(Costs costs, double unit) {
  costs.comm *= unit;
  costs.exchange *= unit;
  costs.offload *= unit;
  costs.reload *= unit;
  costs.ForEachStage([&](StageCosts& stage) {
    for (double StageCosts::*time : kTimesOfStage) stage.*time *= unit;
  });
  return costs;
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
    return InvalidArgument("--run would take {}: give a smaller --unit",
                           FormatSeconds(predicted.makespan * unit));
  }
  if (predicted.peak_memory * bytes > kMostBytes) {
    return InvalidArgument("--run cannot emulate that much memory on a rank: {} activations",
                           FormatNumber(predicted.peak_memory));
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
  result.drift = DriftText(FindDrift(trace, Scaled(costs, unit)));
  return result;
}

double Excess(double measured, double predicted) {
  return predicted > 0 ? measured / predicted - 1 : 0;
}

}  // namespace

void EmulatedRunOptions::Define(CLI::App& app) {
  app.option_defaults()->group("Run");
  app.add_flag("--run", asked_, "Also execute each schedule on emulated devices, and compare");
  AddText(app, "--unit", unit_,
          "Real time of one unit of --cost in the run (5ms, 200us); 1s with --model")
      ->type_name("TIME")
      ->default_str(kDefaultUnit);
}

Status EmulatedRunOptions::Check() const {
  if (unit_ && !asked_) {
    return InvalidArgument("--unit has no effect here: nothing is run; add --run or leave it out");
  }
  PENSTOCK_TRY_STATUS(UnitSeconds());
  return {};
}

Result<double> EmulatedRunOptions::UnitSeconds() const {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  const std::string_view text = unit_ ? std::string_view(*unit_) : kDefaultUnit;
  for (const auto& [name, seconds] : kUnits) {
    if (!text.ends_with(name)) continue;
    const auto count = ParseNumber(text.substr(0, text.size() - name.size()));
    if (!count) continue;
    if (*count > 0 && *count * seconds <= kLongestRun) return *count * seconds;
    return InvalidArgument("--unit {}: give more than 0 s and at most {} s", Quote(text),
                           kLongestRun);
  }
  return InvalidArgument("--unit {}: give a time with its unit (5ms, 200us, 1s)", Quote(text));
}

Result<std::vector<EmulatedRun>> EmulatedRunOptions::Run(const std::vector<Simulated>& all) const {
  PENSTOCK_TRY(const double unit, UnitSeconds());
  const std::atomic<bool>& cancel = CatchInterrupt();
  const std::string busy = BusyMachine();
  std::vector<EmulatedRun> runs;
  for (const Simulated& simulated : all) {
    // The costs of a model are in seconds.
    const bool in_seconds = !unit_ && simulated.chosen.time_unit == "s";
    auto run = RunOne(simulated, in_seconds ? 1 : unit, cancel);
    if (!run) {
      return MakeError(run.error().code, "{}: {}", simulated.chosen.label, run.error().line());
    }
    runs.push_back(*std::move(run));
    runs.back().busy = busy;
  }
  return runs;
}

Json ToJson(const Simulated& simulated, const EmulatedRun& run) {
  Json per_rank = Json::array();
  for (const RankResult& rank : run.measured.ranks) {
    per_rank.push_back({{"busy", rank.busy},
                        {"first_start", rank.first_start},
                        {"last_end", rank.last_end},
                        {"peak_memory", rank.peak_memory}});
  }
  return {{"makespan", run.measured.makespan},
          {"excess", Excess(run.measured.makespan, simulated.result.makespan)},
          {"bubble", run.measured.bubble},
          {"span_bubble", run.measured.span_bubble},
          {"peak_memory", run.measured.peak_memory},
          {"messages", run.measured.messages},
          {"unit_seconds", run.unit},
          {"makespan_seconds", run.makespan},
          {"cpu_seconds", run.cpu},
          {"shortest_action_seconds", run.shortest},
          {"worst_lateness_seconds", run.lateness},
          {"too_short", run.shortest > 0 && run.shortest < kShortestAction},
          {"drift", run.drift},
          {"busy_machine", run.busy.empty() ? Json() : Json(run.busy)},
          {"per_rank", std::move(per_rank)}};
}

Table EmulatedTable(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) {
  Table table;
  table.title = "Run on emulated devices";
  table.columns = {"schedule", "makespan: predicted", "measured", "off",      "bubble: predicted",
                   "measured", "memory: predicted",   "measured", "messages", "time",
                   "cpu"};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const SimulationResult& predicted = all[i].result;
    const SimulationResult& measured = runs[i].measured;
    const std::string& unit = all[i].chosen.memory_unit;
    table.rows.push_back(
        {all[i].chosen.label, FormatAmount(predicted.makespan, all[i].chosen.time_unit),
         FormatAmount(measured.makespan, all[i].chosen.time_unit),
         fmt::format("{:+.2f}%", 100 * Excess(measured.makespan, predicted.makespan)),
         FormatPercent(predicted.bubble), FormatPercent(measured.bubble),
         FormatAmount(predicted.peak_memory, unit), FormatAmount(measured.peak_memory, unit),
         fmt::format("{}", measured.messages), FormatAmount(runs[i].makespan, "s"),
         FormatAmount(runs[i].cpu, "s")});
  }
  return table;
}

std::string EmulatedText(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) {
  std::string text;
  double shortest = std::numeric_limits<double>::infinity();
  double lateness = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    text += fmt::format("{}: {}.\n", all[i].chosen.label, runs[i].drift);
    if (runs[i].shortest > 0) shortest = std::min(shortest, runs[i].shortest);
    lateness = std::max(lateness, runs[i].lateness);
  }
  if (runs.empty()) return text;
  if (!runs.front().busy.empty()) {
    text += fmt::format("Measured times may be too long: {}.\n", runs.front().busy);
  }
  text += fmt::format("One unit is {}; a thread woke up at most {} late.\n",
                      FormatSeconds(runs.front().unit), FormatSeconds(lateness));
  if (shortest < kShortestAction) {
    text += fmt::format(
        "The shortest action takes {}, too short to emulate well: give a --unit of at least {}.\n",
        FormatSeconds(shortest), FormatSeconds(runs.front().unit * kShortestAction / shortest));
  }
  return text;
}

}  // namespace penstock
