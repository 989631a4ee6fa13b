// penstock simulate: prices one schedule or compares several.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/text/quote.h"
#include "base/units.h"
#include "cli/command/command.h"
#include "cli/commands/emulated_run.h"
#include "cli/figures/comparison.h"
#include "cli/figures/memory_figures.h"
#include "cli/help/offered_values.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "cli/output/progress_bar.h"
#include "cli/output/terminal.h"
#include "cli/signals/interrupt.h"
#include "cli/sweep/sweep_output.h"
#include "cli/sweep/sweep_page.h"
#include "interop/primus/dump.h"
#include "report/table.h"
#include "report/time_use.h"
#include "scenario/price/simulated.h"
#include "scenario/sweep/plan.h"
#include "scenario/sweep/run_sweep.h"
#include "scenario/sweep_axes.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

void AddCheckpointCells(const StepEstimate& step, std::vector<std::string>& cells) {
  cells.push_back(step.checkpoints ? fmt::format("{} steps", step.checkpoints->steps) : "-");
  cells.push_back(step.checkpoints ? fmt::format("{:.1f}%", 100 * step.checkpoints->training_part)
                                   : "-");
  cells.push_back(fmt::format("{:.0f}", step.expected_tokens_per_second()));
}

// Whether all schedules have the time of a step.
bool HaveSteps(const std::vector<Simulated>& all) {
  return !all.empty() && std::ranges::all_of(all, [](const Simulated& simulated) {
    return simulated.step.has_value();
  });
}

// One row per schedule: the time of a step with what follows the pipeline, throughput, and the peak
// memory of the worst rank with its states. Requires: HaveSteps.
Table StepTable(const std::vector<Simulated>& all) {
  Table table;
  table.title = "Training step";
  table.columns = {"schedule", "step time",         "gradient sums",      "optimizer",
                   "weights",  "tokens per second", "TFLOP/s per device", "memory with states"};
  const bool fails = std::ranges::any_of(
      all, [](const Simulated& simulated) { return simulated.step->checkpoints.has_value(); });
  if (fails) {
    for (const char* column :
         {"checkpoint every", "time that trains", "expected tokens per second"}) {
      table.columns.emplace_back(column);
    }
  }
  double longest = 0, most = 0;
  for (const Simulated& simulated : all) {
    longest = std::max(longest, simulated.step->step_time);
    most = std::max(most, simulated.step->device_bytes());
  }
  const AmountFormat time = FormatLike(longest, "s"), memory = FormatLike(most, "B");
  for (const Simulated& simulated : all) {
    const StepEstimate& step = *simulated.step;
    table.rows.push_back(
        {simulated.chosen.label, time(step.step_time), time(step.reduce), time(step.update),
         time(step.gather), fmt::format("{:.0f}", step.tokens_per_second()),
         fmt::format("{:.1f}", step.flops_per_device() / 1e12), memory(step.device_bytes())});
    if (fails) AddCheckpointCells(step, table.rows.back());
  }
  return table;
}

using Json = nlohmann::ordered_json;

std::string CellOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Calls `add` with the name and value of each column; columns of nested objects come last.
template <class Add>
void ForEachColumn(const Json& object, const Add& add, const std::string& prefix = "") {
  for (const auto& [key, value] : object.items()) {
    if (!value.is_structured()) add(prefix + key, value);
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) ForEachColumn(value, add, prefix + key + "_");
  }
}

// One row per object, with its values unrounded under the same names; null where an object lacks
// one. The fields of nested objects become columns after these: {"a": {"b": 1}} has "a_b". Arrays
// are left out.
Table TableOf(const Json& objects) {
  Table table;
  std::map<std::string, std::size_t> column_of;
  for (const Json& object : objects) {
    ForEachColumn(object, [&](const std::string& name, const Json& /*value*/) {
      if (column_of.try_emplace(name, table.columns.size()).second) table.columns.push_back(name);
    });
  }
  for (const Json& object : objects) {
    std::vector<std::string>& row = table.rows.emplace_back(table.columns.size(), "null");
    ForEachColumn(object, [&](const std::string& name, const Json& value) {
      row[column_of.at(name)] = CellOf(value);
    });
  }
  return table;
}

nlohmann::ordered_json ToJson(const std::vector<Simulated>& all,
                              const std::vector<EmulatedRun>& runs, bool with_steps) {
  nlohmann::ordered_json schedules = SchedulesJson(all, with_steps);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].memory.empty()) schedules[i]["memory"] = MemoryJson(all[i]);
    if (!runs.empty()) schedules[i]["measured"] = ToJson(all[i], runs[i]);
  }
  return schedules;
}

Table TimeStepTable(const Simulated& simulated) {
  Table table;
  table.columns = {"schedule", "rank", "action", "start", "end"};
  const Schedule& schedule = simulated.chosen.schedule;
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Span& span = simulated.timeline.spans[r][i];
      table.rows.push_back({simulated.chosen.label, fmt::format("{}", r),
                            ToText(schedule.lanes[r][i]), fmt::format("{}", span.start),
                            fmt::format("{}", span.end)});
    }
  }
  return table;
}

// The idle share and the peak of the activations of each rank, next to each other for all
// schedules.
Table RanksTable(const std::vector<Simulated>& all) {
  const TableUnits units = UnitsOf(all);
  std::size_t ranks = 0;
  Table table;
  table.columns = {"rank"};
  for (const Simulated& each : all) {
    table.columns.push_back("idle: " + each.chosen.label);
    table.columns.emplace_back("peak activations");
    ranks = std::max(ranks, each.result.ranks.size());
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(fmt::format("{}", rank));
    for (const Simulated& each : all) {
      const bool has = rank < each.result.ranks.size();
      const double makespan = each.result.makespan;
      row.push_back(has && makespan > 0 ? FormatPercent(1 - each.result.ranks[rank].busy / makespan)
                                        : "-");
      row.push_back(has ? units.Memory(each.chosen, each.result.ranks[rank].peak_memory) : "-");
    }
  }
  return table;
}

// The time of a step in steady state, next to a single step's. No rows if no schedule has one.
Table SteadyTable(const std::vector<Simulated>& all) {
  Table table;
  table.columns = {"schedule", "makespan", "steady step", kRatioColumn};
  std::optional<double> first;
  const TableUnits units = UnitsOf(all);
  for (const Simulated& simulated : all) {
    if (!simulated.steady_step) continue;
    const double steady = *simulated.steady_step;
    if (!first) first = steady;
    table.rows.push_back({simulated.chosen.label,
                          units.Time(simulated.chosen, simulated.result.makespan),
                          units.Time(simulated.chosen, steady), RatioText(steady, *first)});
  }
  return table;
}

OfferedValues OfferedAxes() {
  OfferedValues offered;
  for (const std::string_view key : SweepKeys()) {
    offered.values.push_back({fmt::format("{}=", key)});
  }
  offered.values.push_back({fmt::format("{}={}", kScheduleAxis, kAllSchedules)});
  for (const Algorithm& algorithm : Catalog()) {
    offered.values.push_back({fmt::format("{}={}", kScheduleAxis, algorithm.name)});
  }
  return offered;
}

class SimulateCommand : public Command {
 public:
  std::string Name() const override { return "simulate"; }
  std::string Summary() const override { return "Price schedules: makespan, bubbles, memory"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    for (const FieldGroup group : {FieldGroup::kShape, FieldGroup::kCosts, FieldGroup::kModel,
                                   FieldGroup::kRuns, FieldGroup::kPasses}) {
      options_.Define(app, group);
    }
    run_.Define(app);
    format_.Define(app);
    app.add_flag("--time-steps", time_steps_, "Add every action with its start and end");
    app.add_flag(
        "--memory", memory_,
        "Add the peak memory of each rank by kind, and what causes it; JSON has timelines");
    AddText(app, "--dump", dump_,
            "Write FOLDER/SCHEDULE/pp_rank_N.json, as Primus's simulator does")
        ->type_name("FOLDER");
    app.option_defaults()->group("Sweep");
    Offer(app.add_option(
                 "--sweep", sweep_,
                 "Simulate all combinations of values: ranks=8,16 microbatches=16..128 (each twice "
                 "the previous) chunks=2..8+2 schedule=all (or names); keys are the options of a "
                 "schedule")
              ->type_name("KEY=VALUES..."),
          OfferedAxes);
    AddText(app, "-o,--output", page_, "Write the table and charts of a sweep to a page")
        ->type_name("FILE.html");
    app.footer("Several schedules share one table: penstock simulate gpipe 1f1b interleaved -p 8");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    const Status checked = run_.Check();
    if (!checked) return tl::unexpected(options_.AsGiven(checked.error()));
    options_.purpose = {.has_runs = true, .shows_memory = memory_, .sweeps = true};
    if (memory_ && time_steps_ && format == OutputFormat::kCsv) {
      return InvalidArgument("--memory and --time-steps: CSV has one table; give one of them");
    }
    auto axes = ParseSweep(sweep_);
    if (!axes) return tl::unexpected(options_.AsGiven(std::move(axes).error()));
    options_.scenario.sweep = std::move(*axes);
    PENSTOCK_TRY(std::optional<PrimusSchedules> primus, options_.ReadSources());
    if (!options_.scenario.sweep.empty()) return Sweep(format);
    if (!page_.empty()) {
      return InvalidArgument(
          "--output has no effect without --sweep; 'penstock report' writes the "
          "page of schedules");
    }
    PENSTOCK_TRY(std::vector<Simulated> all, SimulateAll(std::move(primus), format));
    const Status one_latency = RefuseLinks(all);
    if (!one_latency) return tl::unexpected(options_.AsGiven(one_latency.error()));
    if (memory_) AddMemory(all);
    if (!dump_.empty()) PENSTOCK_TRY_STATUS(Dump(all));
    std::vector<EmulatedRun> runs;
    if (run_.asked()) {
      auto measured = run_.Run(all);
      if (!measured) return tl::unexpected(options_.AsGiven(std::move(measured).error()));
      runs = *std::move(measured);
    }
    switch (format) {
      case OutputFormat::kJson:
        PrintObject({{"schedules", ToJson(all, runs, time_steps_)}});
        break;
      case OutputFormat::kCsv:
        PrintCsv(all, runs);
        break;
      case OutputFormat::kTable:
        PrintTables(all, runs);
        break;
    }
    return kExitOk;
  }

 private:
  Result<std::vector<Simulated>> SimulateAll(std::optional<PrimusSchedules> primus,
                                             OutputFormat format) {
    PENSTOCK_TRY(PrimusSchedules choice, options_.Build(std::move(primus)));
    if (dump_.empty()) dump_ = choice.output_dir;
    const bool compares = format == OutputFormat::kTable && choice.schedules.size() > 1;
    auto all = SimulateEach(std::move(choice.schedules),
                            compares || time_steps_ || memory_ || !dump_.empty());
    if (!all) return tl::unexpected(options_.AsGiven(std::move(all).error()));
    return all;
  }

  // Emulated ranks and dumps have one latency for all messages, and links of their own.
  Status RefuseLinks(const std::vector<Simulated>& all) const {
    const char* const asked = run_.asked() ? "run" : "dump";
    if (!run_.asked() && dump_.empty()) return {};
    for (const Simulated& simulated : all) {
      PENSTOCK_TRY_STATUS(RequireOneLatency(asked, simulated));
    }
    return {};
  }

  Result<int> Sweep(OutputFormat format) const {
    const std::pair<const char*, bool> others[] = {{"--run", run_.asked()},
                                                   {"--time-steps", time_steps_},
                                                   {"--memory", memory_},
                                                   {"--dump", !dump_.empty()}};
    for (const auto& [option, given] : others) {
      if (given) return InvalidArgument("{} has no effect in a sweep; leave it out", option);
    }
    if (!page_.empty() && !page_.ends_with(".html")) {
      return InvalidArgument(
          "--output {}: a sweep is written as a page; give a file ending in .html", page_);
    }
    const auto plan = SweepPlan::Of(options_.scenario);
    if (!plan) return tl::unexpected(options_.AsGiven(plan.error(), "sweep"));
    PENSTOCK_TRY(const std::vector<SweptSchedule> swept, RunPlan(*plan));
    if (!page_.empty()) PENSTOCK_TRY_STATUS(WriteSweepPage(*plan, swept, page_));
    PrintSweep(*plan, swept, format);
    return kExitOk;
  }

  // Runs the sweep with a bar; Ctrl-C ends it.
  Result<std::vector<SweptSchedule>> RunPlan(const SweepPlan& plan) const {
    ProgressBar bar(plan.size());
    bar.Show(0);
    SweepWatch watch;
    watch.progress = [&bar](std::size_t done) { bar.Show(done); };
    watch.stop = &CatchInterrupt();
    watch.spelling = OptionOf;
    auto swept = RunSweep(plan, watch);
    ReleaseInterrupt();
    if (swept) return swept;
    return tl::unexpected(options_.AsGiven(std::move(swept).error()));
  }

  void PrintSweep(const SweepPlan& plan, const std::vector<SweptSchedule>& swept,
                  OutputFormat format) const {
    if (format == OutputFormat::kJson) {
      PrintObject({{"schedules", SweptJson(plan, swept)}, {"skipped", SkippedJson(plan, swept)}});
    } else if (format == OutputFormat::kCsv) {
      fmt::print("{}", FormatTableCsv(TableOf(SweptJson(plan, swept))));
    } else if (page_.empty()) {
      const Table table = SweepTable(plan, swept);
      fmt::print("{}\n{}{}", TableText(table), LegendText(plan, swept, table), SkippedText(swept));
    } else {
      fmt::print("wrote {}\n{}", page_, SkippedText(swept));
    }
  }

  Status Dump(const std::vector<Simulated>& all) const {
    std::set<std::string> names;
    for (const Simulated& simulated : all) {
      const std::string& label = simulated.chosen.label;
      const std::string name = std::filesystem::path(label).filename().string();
      if (name.empty() || name == "." || name == "..") {
        return InvalidArgument("{} cannot name a folder below {}", Quote(label), dump_);
      }
      if (!names.insert(name).second) {
        return InvalidArgument("two schedules are called {}: one dump would replace the other",
                               Quote(name));
      }
      PENSTOCK_TRY_STATUS(
          SavePrimusDump({simulated.chosen.schedule, simulated.timeline, simulated.chosen.costs,
                          simulated.result, simulated.chosen.memory_unit},
                         (std::filesystem::path(dump_) / name).string()));
    }
    return {};
  }

  void PrintCsv(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) const {
    if (memory_) {
      fmt::print("{}", FormatTableCsv(MemoryCsvTable(all)));
      return;
    }
    if (!time_steps_) {
      fmt::print("{}", FormatTableCsv(TableOf(ToJson(all, runs, false))));
      return;
    }
    Table table;
    for (const Simulated& simulated : all) {
      Table steps = TimeStepTable(simulated);
      table.columns = steps.columns;
      table.rows.insert(table.rows.end(), steps.rows.begin(), steps.rows.end());
    }
    fmt::print("{}", FormatTableCsv(table));
  }

  // Why ranks wait, and what each rank does, of several schedules.
  static void PrintCauses(const std::vector<Simulated>& all) {
    const TableUnits units = UnitsOf(all);
    std::vector<std::string> labels;
    std::vector<TimeUse> uses;
    for (const Simulated& each : all) {
      labels.push_back(each.chosen.label);
      const Explanation explanation = ExplanationOf(each);
      uses.push_back(TimeUseOf({each.chosen.schedule, each.timeline, explanation.bubbles}));
    }
    const auto time = [&](double value) { return units.Time(all.front().chosen, value); };
    fmt::print("\n{}\n{}", TableText(TimeUseTable(labels, uses, time)), TableText(RanksTable(all)));
  }

  void PrintTables(const std::vector<Simulated>& all, const std::vector<EmulatedRun>& runs) const {
    const Table comparison = RankedTable(all);
    if (all.size() > 1) fmt::print("{}", ConclusionsText(options_.scenario, all));
    fmt::print("{}", TableText(comparison));
    if (all.size() > 1) PrintCauses(all);
    if (all.size() == 1)
      fmt::print("\n{}", TableText(RankTable(all.front().result, all.front().chosen.time_unit,
                                             all.front().chosen.memory_unit)));
    if (HaveSteps(all)) fmt::print("\n{}", TableText(StepTable(all)));
    const Table steady = SteadyTable(all);
    if (!steady.rows.empty()) fmt::print("\n{}", TableText(steady));
    if (memory_) {
      for (const Simulated& simulated : all) {
        fmt::print("\n{}", TableText(MemoryTable(simulated)));
      }
    }
    if (time_steps_) {
      for (const Simulated& simulated : all) {
        fmt::print("\n{}", TableText(TimeStepTable(simulated)));
      }
    }
    if (!runs.empty()) fmt::print("\n{}", TableText(EmulatedTable(all, runs)));
    fmt::print("\n{}{}{}{}", EmulatedText(all, runs), MarksText(comparison), UnitsText(all),
               memory_ ? MemoryText(all) : "");
    if (!dump_.empty()) fmt::print("Primus's dumps are in {}.\n", dump_);
  }

  ScenarioOptions options_;
  FormatOptions format_;
  EmulatedRunOptions run_;
  std::string dump_;
  bool time_steps_ = false, memory_ = false;
  std::vector<std::string> sweep_;  // KEY=VALUES
  std::string page_;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace penstock
