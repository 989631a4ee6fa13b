// penstock report: writes a page, picture or trace of one or several schedules to a file.
#include "report/report.h"

#include "cli/command.h"
#include "cli/figures/comparison.h"
#include "cli/figures/memory_figures.h"
#include "cli/options/option_values.h"
#include "simulate/memory/memory_over_time.h"

namespace penstock {
namespace {

std::vector<KeyFigure> FiguresOf(const Simulated& simulated) {
  const SimulationResult& result = simulated.result;
  const std::string& unit = simulated.chosen.memory_unit;
  const std::string& time_unit = simulated.chosen.time_unit;
  return {{"makespan", FormatAmount(result.makespan, time_unit),
           time_unit.empty() ? "in the unit of the costs" : "from the first action to the last"},
          {"bubble", FormatPercent(result.bubble), "1 - ideal / makespan"},
          {"span bubble", FormatPercent(result.span_bubble), "1 - ideal / longest span of a rank"},
          {"peak memory", FormatAmount(result.peak_memory, unit),
           simulated.above_limit ? "above the limit"
           : unit.empty()        ? "activations of one rank and microbatch"
                                 : "of the worst rank"},
          {"messages", fmt::format("{}", result.messages), "between ranks, in both directions"},
          {"actions", fmt::format("{}", result.actions), "that compute"}};
}

// A dot per schedule: what memory buys.
Plot MakespanAndMemory(const std::vector<Simulated>& all) {
  Plot plot;
  plot.title = "Makespan and memory";
  const ChosenSchedule& chosen = all.front().chosen;
  plot.x_name = chosen.memory_unit == "B" ? "peak memory, GiB" : "peak memory";
  plot.y_name = chosen.time_unit == "s" ? "makespan, s" : "makespan";
  const double scale = chosen.memory_unit == "B" ? 0x1p-30 : 1;
  for (const Simulated& simulated : all) {
    plot.series.push_back({simulated.chosen.label,
                           {{simulated.result.peak_memory * scale, simulated.result.makespan}}});
  }
  return plot;
}

// One schedule with its figures, or several below each other on the same time axis.
ReportInput InputOf(const std::vector<Simulated>& all) {
  const Simulated& first = all.front();
  ReportInput input;
  input.schedule = &first.chosen.schedule;
  input.time_unit = first.chosen.time_unit;
  input.memory_unit = first.chosen.memory_unit;
  for (const Simulated& simulated : all) {
    const Schedule& schedule = simulated.chosen.schedule;
    if (!input.title.empty()) input.title += ", ";
    input.title += simulated.chosen.label;
    input.runs.push_back({all.size() > 1 ? simulated.chosen.label : "simulated",
                          &simulated.timeline, simulated.result,
                          MemoryOverTime(schedule, simulated.timeline, simulated.chosen.costs),
                          simulated.measured ? input.runs.back().schedule : &schedule,
                          ExplanationOf(simulated), simulated.messages, simulated.memory});
  }
  if (all.size() == 1) {
    input.subtitle = ShapeText(first.chosen.schedule);
    input.figures = FiguresOf(first);
  } else {
    input.subtitle = fmt::format("{} ranks, {} microbatches", first.chosen.schedule.ranks(),
                                 first.chosen.schedule.microbatches);
    input.overview.push_back(MakespanAndMemory(all));
    input.tables.push_back(RankedTable(all));
    input.tables.back().title = "Comparison";
  }
  return input;
}

class ReportCommand : public Command {
 public:
  std::string Name() const override { return "report"; }
  std::string Summary() const override {
    return "Write a page, picture or trace of schedules to a file";
  }
  void Define(CLI::App& app) override {
    options_.DefineSchedules(app);
    app.option_defaults()->group("Output");
    AddText(app, "-o,--output", output_,
            "The file to write; its ending is the format: .html, .svg, .png, .pdf or .trace.json")
        ->required()
        ->type_name("FILE");
    app.add_flag("--json", options_.json, "Print the files and figures as JSON");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(std::vector<Simulated> all, SimulateChosen(options_));
    all = WithMeasured(std::move(all));
    AddMemory(all);
    PENSTOCK_TRY_STATUS(WriteReport(InputOf(all), output_));
    if (options_.json) {
      nlohmann::ordered_json schedules = nlohmann::ordered_json::array();
      for (const Simulated& simulated : all) schedules.push_back(ToJson(simulated, false));
      const nlohmann::ordered_json object = {{"files", {output_}}, {"schedules", schedules}};
      fmt::print("{}\n", object.dump(2));
    } else {
      fmt::print("wrote {}\n", output_);
    }
    return kExitOk;
  }

 private:
  ScheduleOptions options_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace penstock
