// Pieces of markup that the SVG and the page share.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "report/report.h"

namespace penstock {

// The text with & < > " replaced by their entities.
std::string EscapeMarkup(std::string_view text);

// A plot as an <svg> element of class "plot". Its attribute data-scale holds the x of the left and
// right edge, then their places in the picture.
std::string PlotSvg(const Plot& plot);

// "makespan 117, bubble 17.9%, peak memory 8"
std::string RunFigures(const ReportInput& input, const ReportRun& run);

// Refuses an input without a schedule or a run, and runs that do not fit the schedule.
Status CheckReport(const ReportInput& input);

}  // namespace penstock
