// penstock report: writes a schedule's picture, page or trace to a file.
#include "report/report.h"

#include "cli/command.h"
#include "cli/simulated.h"
#include "simulate/memory.h"

namespace penstock {
namespace {

ReportInput InputOf(const Simulated& simulated) {
  const Schedule& schedule = simulated.chosen.schedule;
  const SimulationResult& result = simulated.result;
  ReportInput input;
  input.title = simulated.chosen.label;
  input.subtitle = ShapeText(schedule);
  input.schedule = &schedule;
  input.runs.push_back({"simulated", &simulated.timeline, result,
                        MemoryOverTime(schedule, simulated.timeline, simulated.chosen.costs)});
  input.figures = {
      {"makespan", FormatNumber(result.makespan), "in the unit of the costs"},
      {"bubble", FormatPercent(result.bubble), "1 - ideal / makespan"},
      {"span bubble", FormatPercent(result.span_bubble), "1 - ideal / longest span of a rank"},
      {"peak memory", FormatNumber(result.peak_memory), "activations of a rank's microbatch"},
      {"messages", fmt::format("{}", result.messages), "between ranks, both ways"},
      {"actions", fmt::format("{}", result.actions), "that compute"}};
  return input;
}

class ReportCommand : public Command {
 public:
  std::string Name() const override { return "report"; }
  std::string Summary() const override { return "Write a schedule's page, picture or trace"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    options_.DefineShape(app);
    options_.DefineCosts(app);
    app.add_option("-o,--output", output_,
                   "The file; its ending says what: .html .svg .png .trace.json")
        ->required();
    app.add_flag("--json", options_.json, "Print what was written as JSON");
  }

  Result<int> Run() override {
    if (options_.schedules.size() > 1) {
      return InvalidArgument("a report shows one schedule, and {} are given",
                             options_.schedules.size());
    }
    PENSTOCK_TRY(const std::vector<Simulated> all, SimulateChosen(options_, true));
    PENSTOCK_TRY_STATUS(WriteReport(InputOf(all.front()), output_));
    if (options_.json) {
      nlohmann::ordered_json object = ToJson(all.front(), false);
      object["files"] = {output_};
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
