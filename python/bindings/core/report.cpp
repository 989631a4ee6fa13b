// Reports and pictures of runs.
#include "report/report.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/core/binding.h"
#include "bindings/core/run.h"
#include "report/terminal.h"

namespace penstock::python {
namespace {

using Runs = std::vector<std::pair<std::string, const Run*>>;  // by label

struct ReportStyle {
  std::string title, subtitle;
  int width = 1200;  // of pictures, in pixels
  bool for_paper = false;
  std::vector<std::pair<std::string, std::string>> figures;  // name, value
  std::vector<std::string> columns;  // of the table that compares runs; may be empty
  std::vector<std::vector<std::string>> rows;
};

Plot MakespanAndMemory(const Runs& runs) {
  Plot plot;
  plot.title = "Makespan and activations";
  const Run& first = *runs.front().second;
  const bool in_bytes = first.memory_unit == "B";
  plot.x_name = in_bytes ? "peak activations, GiB" : "peak activations";
  plot.y_name = first.time_unit == "s" ? "makespan, s" : "makespan";
  for (const auto& [label, run] : runs) {
    const double memory = run->result.peak_memory * (in_bytes ? 0x1p-30 : 1);
    plot.series.push_back({label, {{memory, run->result.makespan}}});
  }
  return plot;
}

// Runs of equal schedules share one object, which lets the page compare single actions.
const Schedule* SharedSchedule(const ReportInput& input, const Schedule& schedule) {
  for (const ReportRun& earlier : input.runs) {
    const Schedule& other = *earlier.schedule;
    if (other.placement == schedule.placement && other.lanes == schedule.lanes) {
      return earlier.schedule;
    }
  }
  return &schedule;
}

// What a page shows in addition to the timeline.
void AddDetails(const Run& run, ReportRun& drawn) {
  drawn.explanation = Explain(*drawn.schedule, run.timeline(), run.messages());
  if (!run.costs) return;
  drawn.costs = &*run.costs;
  drawn.memory = MemoryOverTime(*drawn.schedule, run.timeline(), *run.costs);
  const double per_byte = run.memory_unit == "B" && !run.messages().empty() ? 1 : 0;
  drawn.memory_by_kind =
      MemoryByKind({*drawn.schedule, run.timeline(), run.messages(), *run.costs, per_byte});
}

// Refuses runs whose times or memory cannot be drawn on one axis.
void CheckUnits(const Runs& runs) {
  if (runs.empty()) Refuse("report: no timeline is given");
  const Run& first = *runs.front().second;
  for (const auto& [label, run] : runs) {
    if (run->time_unit != first.time_unit) {
      Refuse(
          "report: {} is in seconds and {} is not; give both costs with time_unit 's', or "
          "from_times the unit of the costs",
          first.time_unit.empty() ? label : runs.front().first,
          first.time_unit.empty() ? runs.front().first : label);
    }
  }
}

ReportInput InputOf(const Runs& runs, const ReportStyle& style) {
  CheckUnits(runs);
  const Run& first = *runs.front().second;
  ReportInput input;
  input.title = style.title;
  input.subtitle = style.subtitle;
  input.width = style.width;
  input.for_paper = style.for_paper;
  input.time_unit = first.time_unit;
  input.memory_unit = first.memory_unit;
  input.schedule = first.schedule.get();
  for (const auto& [label, run] : runs) {
    ReportRun drawn{
        label, &run->timeline(), run->result, {}, SharedSchedule(input, *run->schedule)};
    drawn.messages = run->messages();
    AddDetails(*run, drawn);
    input.runs.push_back(std::move(drawn));
  }
  for (const auto& [name, value] : style.figures) input.figures.push_back({name, value, ""});
  if (runs.size() > 1) {
    input.overview = {MakespanAndMemory(runs)};
    input.tables.push_back({"Comparison", style.columns, style.rows});
  }
  return input;
}

std::string Terminal(const Run& run, int width, int colors, bool unicode) {
  const TerminalStyle style{width,
                            colors == 2   ? ColorDepth::kTrue
                            : colors == 1 ? ColorDepth::k256
                                          : ColorDepth::kNone,
                            unicode};
  return ValueOf(RenderTerminal(*run.schedule, run.timeline(), style));
}

}  // namespace

void AddReports(nb::module_& module) {
  nb::class_<ReportStyle>(module, "ReportStyle")
      .def(nb::init<>())
      .def_rw("title", &ReportStyle::title)
      .def_rw("subtitle", &ReportStyle::subtitle)
      .def_rw("width", &ReportStyle::width)
      .def_rw("for_paper", &ReportStyle::for_paper)
      .def_rw("figures", &ReportStyle::figures)
      .def_rw("columns", &ReportStyle::columns)
      .def_rw("rows", &ReportStyle::rows);
  module.def(
      "write_report",
      [](const Runs& runs, const ReportStyle& style, const std::string& path) {
        Require(WriteReport(InputOf(runs, style), path));
      },
      "runs"_a, "style"_a, "path"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "svg",
      [](const Runs& runs, const ReportStyle& style) {
        return ValueOf(RenderSvg(InputOf(runs, style)));
      },
      "runs"_a, "style"_a, nb::call_guard<nb::gil_scoped_release>());
  module.def("terminal", &Terminal, "run"_a, "width"_a, "colors"_a, "unicode"_a,
             nb::call_guard<nb::gil_scoped_release>());
  module.def("amount", &FormatAmount, "value"_a, "unit"_a,
             "The amount as text: \"12.4 ms\" of unit \"s\", \"3.50 MiB\" of \"B\".");
}

}  // namespace penstock::python
