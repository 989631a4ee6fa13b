// penstock report: writes a page, picture or trace of one or several schedules to a file.
#include "report/report.h"

#include <filesystem>

#include "base/files.h"
#include "base/text/shell_word.h"
#include "cli/command/command.h"
#include "cli/command/command_line.h"
#include "cli/figures/comparison.h"
#include "cli/options/option_values.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "playground/opening.h"
#include "scenario/figures/report_run.h"
#include "simulate/memory/memory_over_time.h"

namespace penstock {
namespace {

// The unit of the axes of time: seconds, milliseconds or microseconds, by the longest makespan.
struct TimeAxis {
  explicit TimeAxis(const std::vector<Simulated>& all) {
    if (all.front().chosen.time_unit != "s") return;
    double longest = 0;
    for (const Simulated& each : all) longest = std::max(longest, each.result.makespan);
    const bool below_second = longest < 1, below_millisecond = longest < 1e-3;
    unit = below_millisecond ? ", us" : below_second ? ", ms" : ", s";
    scale = below_millisecond ? 1e6 : below_second ? 1e3 : 1;
  }
  std::string unit;
  double scale = 1;
};

// A dot per schedule: what memory buys.
Plot MakespanAndMemory(const std::vector<Simulated>& all) {
  Plot plot;
  plot.title = "Makespan and activations";
  const PricedSchedule& chosen = all.front().chosen;
  plot.x_name = chosen.memory_unit == "B" ? "peak activations, GiB" : "peak activations";
  const TimeAxis time(all);
  plot.y_name = "makespan" + time.unit;
  const double scale = chosen.memory_unit == "B" ? 0x1p-30 : 1;
  for (const Simulated& simulated : all) {
    plot.series.push_back(
        {simulated.chosen.label,
         {{simulated.result.peak_memory * scale, simulated.result.makespan * time.scale}}});
  }
  return plot;
}

// The activations of the rank with the highest peak: the largest amount in each of `count` parts of
// the time.
std::vector<std::pair<double, double>> WorstRankOverTime(const Simulated& simulated,
                                                         std::size_t count) {
  const std::vector<RankResult>& ranks = simulated.result.ranks;
  const auto worst = std::ranges::max_element(ranks, {}, &RankResult::peak_memory);
  const MemoryCurve curve =
      MemoryOverTime(simulated.chosen.schedule, simulated.timeline, simulated.chosen.costs,
                     static_cast<int>(worst - ranks.begin()));
  const double part = simulated.result.makespan / static_cast<double>(count);
  std::vector<std::pair<double, double>> line;
  double held = 0;
  auto change = curve.begin();
  for (std::size_t i = 0; i < count; ++i) {
    double largest = held;
    for (; change != curve.end() && change->time < part * static_cast<double>(i + 1); ++change) {
      held = change->amount;
      largest = std::max(largest, held);
    }
    line.emplace_back(part * (static_cast<double>(i) + 0.5), largest);
  }
  return line;
}

Plot MemoryOfAll(const std::vector<Simulated>& all) {
  constexpr std::size_t kPoints = 240;
  const PricedSchedule& chosen = all.front().chosen;
  const bool in_bytes = chosen.memory_unit == "B";
  Plot plot;
  plot.title = "Activations of the rank with the highest peak";
  const TimeAxis time(all);
  plot.x_name = "time" + time.unit;
  plot.y_name = in_bytes ? "GiB" : "activations";
  for (const Simulated& simulated : all) {
    plot.series.push_back({simulated.chosen.label, WorstRankOverTime(simulated, kPoints)});
    for (auto& [x, y] : plot.series.back().points) {
      x *= time.scale;
      y *= in_bytes ? 0x1p-30 : 1;
    }
  }
  return plot;
}

// One schedule with its figures, or several below each other on the same time axis.
ReportInput InputOf(const Scenario& scenario, const std::vector<Simulated>& all) {
  const Simulated& first = all.front();
  ReportInput input = ExplainedReport(scenario, all);
  for (const Simulated& simulated : all) {
    if (!input.title.empty()) input.title += ", ";
    input.title += simulated.chosen.label;
  }
  if (all.size() == 1) {
    input.subtitle = ShapeText(first.chosen.schedule);
    input.figures = KeyFiguresOf(first);
  } else {
    input.subtitle = fmt::format("{} ranks, {} microbatches", first.chosen.schedule.ranks(),
                                 first.chosen.schedule.microbatches);
    input.overview = {MakespanAndMemory(all), MemoryOfAll(all)};
    input.tables.push_back(RankedTable(all));
    input.tables.back().title = "Comparison";
    // The captions of the timelines have the peaks of all memory.
    std::ranges::replace(input.tables.back().columns, "peak memory", "peak activations");
  }
  if (!first.chosen.about.empty()) input.passages.push_back({"Model", first.chosen.about});
  return input;
}

// Returns the page that tools/playground has built, which lies next to the program or in the share
// folder of its installation; a wheel of PyPI installs its programs in site-packages.
Result<std::string> ReadPlayground() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const char* const name :
       {"playground.html", "share/penstock/playground.html", "../share/penstock/playground.html",
        "../../../../share/penstock/playground.html"}) {
    const std::string path = (program.parent_path() / name).lexically_normal().string();
    if (!error && std::filesystem::exists(path)) return ReadFile(path);
  }
  return NotFound(
      "this program was built without the playground: run tools/playground in its source tree");
}

constexpr int kNarrowest = 240, kWidest = 10000;

class ReportCommand : public Command {
 public:
  std::string Name() const override { return "report"; }
  std::string Summary() const override {
    return "Write a page, picture or trace of schedules to a file";
  }
  void Define(CLI::App& app) override {
    app_ = &app;
    options_.DefineSchedules(app);
    app.option_defaults()->group("Output");
    AddText(app, "-o,--output", output_,
            "The file to write; its ending is the format: .html, .svg, .png, .pdf or .trace.json")
        ->required()
        ->type_name("FILE");
    AddInt(
        app, "--width", width_,
        "Width of a picture in pixels (default 1200); below 700, in the style of a paper's column",
        {kNarrowest, kWidest});
    app.add_flag("--paper", paper_, "Colors of a picture that differ in brightness, for print");
    app.add_flag("--playground", playground_,
                 "Write a page on which the first schedule can be changed (docs/playground.md)");
    app.add_flag("--json", json_, "Print the files and figures as JSON");
  }

  Result<int> Run() override {
    PENSTOCK_TRY_STATUS(RefusePictureOptions());
    PENSTOCK_TRY(std::vector<Simulated> all, options_.Simulate());
    all = WithMeasured(std::move(all));
    AddMemory(all);
    PENSTOCK_TRY_STATUS(playground_ ? WritePlayground(all)
                                    : WriteInput(InputOf(options_.scenario, all)));
    if (json_) {
      PrintObject({{"files", {output_}}, {"schedules", SchedulesJson(all, false)}});
    } else {
      fmt::print("wrote {}\n", output_);
    }
    return kExitOk;
  }

 private:
  Status WriteInput(ReportInput input) const {
    input.width = width_.value_or(input.width);
    input.for_paper = paper_;
    PENSTOCK_TRY_STATUS(AddSources(input));
    return WriteReport(input, output_);
  }

  Status WritePlayground(const std::vector<Simulated>& all) const {
    PENSTOCK_TRY(const std::string page, ReadPlayground());
    PENSTOCK_TRY(const std::string opened, playground::OpenWith(page, options_.scenario, all));
    return WriteFileAtomically(output_, opened);
  }

  Status RefusePictureOptions() const {
    const std::string_view path = output_;
    if (playground_ && !path.ends_with(".html")) {
      return InvalidArgument("--playground writes a page: give -o a name that ends with .html");
    }
    if (!path.ends_with(".html") && !path.ends_with(".trace.json")) return {};
    if (!width_ && !paper_) return {};
    return InvalidArgument("{} has no effect on {}: only pictures (.svg, .png, .pdf) have it",
                           width_ ? "--width" : "--paper", output_);
  }

  // What made the report.
  Status AddSources(ReportInput& input) const {
    const std::string command = CommandLine(Name(), *app_);
    input.passages.push_back({"Command", command, true});
    const std::string file = " --output " + ShellWord(output_);
    const std::size_t at = command.find(file);
    if (at != std::string::npos) {
      std::string opens = command;
      opens.replace(at, file.size(), " --output playground.html --playground");
      input.passages.push_back(
          {"Change the first schedule by hand in the playground", opens, true});
    }
    if (options_.config.empty()) return {};
    PENSTOCK_TRY(std::string config, ReadFile(options_.config));
    input.passages.push_back({options_.config, std::move(config)});
    return {};
  }

  ScenarioOptions options_;
  bool json_ = false, playground_ = false;
  std::string output_;
  std::optional<int> width_;
  bool paper_ = false;
  const CLI::App* app_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace penstock
