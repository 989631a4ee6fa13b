// The report: draws any schedule with any timelines, simulated or measured, as a self-contained
// page, a picture, or a trace for Chrome and Perfetto.
//
// Ownership: a ReportInput borrows its schedule and timelines, which must outlive the call.
// Errors: kInvalidArgument if a timeline does not match its schedule or a file has an unknown
// ending; kUnavailable if a file cannot be written. Files are written atomically.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "explain/explanation.h"
#include "report/table.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/memory/memory_by_kind.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/simulate.h"

namespace penstock {

// One timeline of a schedule, with a name ("predicted", "measured").
struct ReportRun {
  std::string label;
  const Timeline* timeline = nullptr;
  SimulationResult result;          // from Simulate, or from Summarize for a measured run
  std::vector<MemoryCurve> memory;  // one per rank; empty where unknown
  // Set where runs have different schedules. Otherwise the run is of the report's schedule.
  const Schedule* schedule = nullptr;
  // Shown where set: why ranks are idle, and the critical path.
  std::optional<Explanation> explanation = {};
  std::vector<SentMessage> messages = {};  // of a measured run unknown
  // By rank; may be empty. The page shows it instead of `memory`.
  std::vector<RankMemory> memory_by_kind = {};
  std::optional<double> memory_limit = {};  // of a rank, of what the page shows
  const Costs* costs = nullptr;             // where set, the page says what actions send and hold
  bool above_limit = false;                 // whether some rank needs more memory than it has
  std::string memory_unit = {};             // activations are compared with those of the same unit
  std::string reading = {};                 // a conclusion about how a recorded run was read
};

// A line over x, such as the loss over steps. A series of one point is drawn as a dot.
struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
};
struct Plot {
  std::string title;
  std::string x_name;
  std::string y_name;
  std::vector<Series> series;
  // If set, x are indices of these values, which are drawn at equal distances.
  std::vector<std::string> x_labels = {};
};

// A figure at the top of the page: "held-out loss", "1.82", "nats per byte".
struct KeyFigure {
  std::string name;
  std::string value;
  std::string note;
};

// Plain text: what the model generated, the configuration, or a command, which can be copied.
struct Passage {
  std::string title;
  std::string text;
  bool is_command = false;
};

// What the reader may try next, and the command that shows it.
struct Advice {
  std::string text, command;
};

struct ReportInput {
  std::string title;
  std::string subtitle;
  int width = 1200;  // of the picture, in pixels
  // RenderSvg: colors that differ in brightness (paper.h).
  bool for_paper = false;
  // RenderSvg: draws the runs' rows of each rank below each other, for comparison, instead of one
  // run after the other. The runs must have the same number of ranks.
  bool by_rank = false;
  std::string time_unit;    // "s", or empty for the unit of the costs
  std::string costs;        // what the page says of the costs: "F 1, I 1, W 1"; may be empty
  std::string memory_unit;  // "B", or empty for activations of one rank's share of one microbatch
  const Schedule* schedule = nullptr;  // of all runs that have none of their own
  std::vector<ReportRun> runs;         // predicted first, then measured; at least one
  std::vector<KeyFigure> figures;
  std::optional<Advice> advice;  // shown below the conclusions (conclusions.h)
  std::vector<Plot> overview;    // shown above the timelines
  std::vector<Plot> plots;
  std::vector<Table> tables;  // shown before the tables per rank, which the report adds
  std::vector<Passage> passages;
};

// Returns a self-contained page.
Result<std::string> RenderHtml(const ReportInput& input);
// Returns one picture of all timelines.
Result<std::string> RenderSvg(const ReportInput& input);
// Returns one plot as a picture.
std::string RenderPlot(const Plot& plot);
// Returns trace-event JSON: one process per run, one track per rank, memory as counters, messages
// as flows between actions, and as slices of their own from when they leave until they arrive. The
// color of an action depends on its kind alone: Perfetto hashes the name without its digits, and
// Chrome reads "cname".
// Times of unit "s" are real; otherwise one unit of the costs is shown as a millisecond. The trace
// contains its schedules, with which interop/traces reads it back.
Result<std::string> RenderChromeTrace(const ReportInput& input);

Status WriteHtmlReport(const ReportInput& input, const std::string& path);
Status WriteSvg(const ReportInput& input, const std::string& path);
Status WriteChromeTrace(const ReportInput& input, const std::string& path);
Status WritePlot(const Plot& plot, const std::string& path);
// Convert the SVG by rsvg-convert. Errors: also kUnavailable where it is not installed.
Status WritePng(const ReportInput& input, const std::string& path);
Status WritePdf(const ReportInput& input, const std::string& path);

// Chooses the format by the ending of the path: .html, .svg, .png, .pdf or .trace.json.
Status WriteReport(const ReportInput& input, const std::string& path);

}  // namespace penstock
