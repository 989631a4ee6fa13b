// The timelines of a page, in parts, and the data and scripts that draw them.
#pragma once

#include <span>
#include <string>

#include "report/report.h"

namespace penstock {

// A checkbox among the controls.
std::string SwitchHtml(std::string_view id, std::string_view name, bool checked = false);
// The title and controls of the card, with more switches if there are any, and the legend of all
// runs.
std::string TimelineHead(const ReportInput& input, const std::string& switches = "");
// The colors of actions, causes of idle time and kinds of memory in all runs.
std::string LegendHtml(const ReportInput& input);
// The figures of a run and why its ranks are idle, as text.
std::string CaptionText(const ReportInput& input, const ReportRun& run);
// One timeline with its caption, and the same as text.
std::string RunHtml(const ReportInput& input, std::size_t index);
// The line that gives the unit of times.
std::string UnitHtml(const ReportInput& input);
// Where the time of a rank goes in each of these runs that is explained, on average; no rows if
// there are none.
Table UseTable(const ReportInput& input, std::span<const ReportRun> runs);
std::string RanksCard(const ReportInput& input, const ReportRun& run);
// What goes after the page's footer. Requires: RunHtml is on the page for each run.
std::string PageScripts(const ReportInput& input);

}  // namespace penstock
