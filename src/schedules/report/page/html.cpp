#include "report/markup.h"
#include "report/page/conclusions_card.h"
#include "report/page/page_parts.h"
#include "report/page/timeline_card.h"
#include "report/report.h"

namespace penstock {
namespace {

// With more actions, the page has no picture for browsers without scripts.
constexpr std::size_t kMostInPicture = 4000;

Result<std::string> TimelineCard(const ReportInput& input) {
  std::string html = "<section class=\"card\">" + TimelineHead(input);
  for (std::size_t i = 0; i < input.runs.size(); ++i) html += RunHtml(input, i);
  html += UnitHtml(input);
  std::size_t actions = 0;
  for (const ReportRun& run : input.runs) actions += ScheduleOf(input, run).action_count();
  if (actions <= kMostInPicture) {
    PENSTOCK_TRY(const std::string picture, RenderSvg(input));
    html += "<noscript>" + picture + "</noscript>\n";
  }
  return html + "</section>\n";
}

std::string PlotCards(const std::vector<Plot>& plots) {
  std::string cards;
  for (const Plot& plot : plots) cards += PlotCard(plot);
  return cards.empty() ? cards : "<div class=\"columns\">" + cards + "</div>\n";
}

std::string TableCards(const ReportInput& input) {
  std::string html;
  for (const Table& table : input.tables) html += TableCard(table.title, table);
  if (input.runs.size() > 1 &&
      &ScheduleOf(input, input.runs[0]) == &ScheduleOf(input, input.runs[1])) {
    const Table table = PredictedMeasuredTable(input.runs[0].result, input.runs[1].result,
                                               input.time_unit, input.memory_unit);
    html += TableCard(table.title, table);
  }
  html += "<div class=\"columns\">";
  const Table use = UseTable(input, input.runs);
  if (!use.rows.empty()) html += TableCard(use.title, use);
  for (const ReportRun& run : input.runs) html += RanksCard(input, run);
  return html + "</div>\n";
}

}  // namespace

Result<std::string> RenderHtml(const ReportInput& input) {
  PENSTOCK_TRY_STATUS(CheckReport(input));
  PENSTOCK_TRY(const std::string timeline, TimelineCard(input));
  std::string html = PageStart(input.title, input.subtitle);
  html += ConclusionsCard(input, input.runs) + FiguresHtml(input.figures) +
          R"(<div class="overview">)" + PlotCards(input.overview) + "</div>\n" + timeline;
  html += PlotCards(input.plots);
  html += TableCards(input);
  for (const Passage& passage : input.passages) {
    html += PassageCard(passage);
  }
  html += WordsCard(input);
  return html + PageEnd("Made by Penstock.", PageScripts(input));
}

}  // namespace penstock
