// The report: draws any schedule with any timelines, simulated or measured, as a self-contained
// page, a picture, or a trace for Chrome and Perfetto.
//
// Ownership: a ReportInput borrows its schedule and timelines, which must live through the call.
// Errors: kInvalidArgument where a timeline is not the schedule's, or the ending of a file is
// unknown; kUnavailable where a file cannot be written. Files appear whole or not at all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "report/table.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/memory.h"
#include "simulate/simulate.h"

namespace penstock {

// One run of a schedule: what a timeline shows, under a name ("predicted", "measured").
struct ReportRun {
  std::string label;
  const Timeline* timeline = nullptr;
  SimulationResult result;          // from Simulate, or from Summarize for a measured run
  std::vector<MemoryCurve> memory;  // one a rank; empty where it is not known
  // What ran, where it is not the report's schedule: several schedules side by side.
  const Schedule* schedule = nullptr;
};

// A line over x: the loss over steps, say. Several series share one plot.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
};
struct Plot {
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Series> series;
};

// A figure that stands at the top of the page: "held-out loss", "1.82", "nats a byte".
struct KeyFigure {
  std::string name;
  std::string value;
  std::string note;
};

// A passage of plain text: what the model wrote, or the configuration.
struct Passage {
  std::string title;
  std::string text;
};

struct ReportInput {
  std::string title;
  std::string subtitle;
  int width = 1200;         // of the picture, in pixels
  std::string time_unit;    // "s", or empty for the unit of the costs
  std::string memory_unit;  // "B", or empty for activations of one rank's share of one microbatch
  const Schedule* schedule = nullptr;  // what ran, but for runs that name their own
  std::vector<ReportRun> runs;         // predicted first, then measured; at least one
  std::vector<KeyFigure> figures;
  std::vector<Plot> plots;
  std::vector<Table> tables;  // before those by rank, which the report makes itself
  std::vector<Passage> passages;
};

// The whole page; nothing is loaded from outside it.
Result<std::string> RenderHtml(const ReportInput& input);
// The runs' timelines under each other, as one picture.
Result<std::string> RenderSvg(const ReportInput& input);
// Trace-event JSON: one process a run, one track a rank, memory as a counter. Times of unit "s" are
// real; others show one unit of the costs as a millisecond.
Result<std::string> RenderChromeTrace(const ReportInput& input);

Status WriteHtmlReport(const ReportInput& input, const std::string& path);
Status WriteSvg(const ReportInput& input, const std::string& path);
Status WriteChromeTrace(const ReportInput& input, const std::string& path);
// By drawing the SVG in a headless Chromium; kUnavailable where none is installed.
Status WritePng(const ReportInput& input, const std::string& path);

// By the ending: .html, .svg, .png or .trace.json.
Status WriteReport(const ReportInput& input, const std::string& path);

}  // namespace penstock
