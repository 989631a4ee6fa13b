// Markup that the SVG and the page share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/palette.h"
#include "report/report.h"

namespace penstock {

// The text with & < > " replaced by their entities.
std::string EscapeMarkup(std::string_view text);

// A plot as two <svg> elements of class "plot", a wide and a narrow one. Their attribute data-scale
// has the values of x at the left and right edges, then the positions of these edges in the
// picture.
std::string PlotSvg(const Plot& plot);

// "makespan 117, bubble 17.9%, peak memory 8"
std::string RunFigures(const ReportInput& input, const ReportRun& run);

// The schedule that the run executed.
const Schedule& ScheduleOf(const ReportInput& input, const ReportRun& run);

// An op that some run shows, with its color for each chunk.
struct LegendEntry {
  Op op;
  std::vector<Color> colors;
};
std::vector<LegendEntry> LegendOf(const ReportInput& input);

// Refuses an input without a schedule or run, and runs that do not match their schedule.
Status CheckReport(const ReportInput& input);

}  // namespace penstock
