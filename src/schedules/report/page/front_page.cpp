#include "report/front_page.h"

#include "base/files.h"
#include "report/front_chart.h"
#include "report/markup.h"
#include "report/page/conclusions_card.h"
#include "report/page/page_parts.h"
#include "report/page/timeline_card.h"

namespace penstock {
namespace {

// The attributes of what belongs to one plan, and is hidden while another one is shown.
std::string OfPlan(const FrontPage& page, std::size_t index) {
  return fmt::format(R"( data-plan="{}"{})", index + 1, index == page.first ? "" : " hidden");
}

std::string ChartCard(const FrontPage& page) {
  std::string hint = "A click on a plan shows its timeline.";
  if (!page.bounds.empty()) hint += " No plan takes less than the dashed bound.";
  return CardHtml("Front", SizesHtml(FrontSvg(page)) + R"(<p class="hint">)" + hint + "</p>");
}

// Characters that a data address cannot have are escaped.
std::string DataAddress(std::string_view text) {
  std::string address = "data:text/csv;charset=utf-8,";
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    const bool plain = byte > ' ' && byte < 0x7f &&
                       std::string_view("%#\"<>&").find(each) == std::string_view::npos;
    address += plain ? std::string(1, each) : fmt::format("%{:02X}", byte);
  }
  return address;
}

std::string PlanCard(const FrontPage& page, std::size_t index) {
  const FrontPlan& plan = page.plans[index];
  std::string html = fmt::format(R"(<section class="card plan"{}><h2>{}: {}</h2>)",
                                 OfPlan(page, index), NumberedPlan(index), EscapeMarkup(plan.name));
  if (!plan.note.empty()) html += "<p>" + EscapeMarkup(plan.note) + "</p>";
  html += FiguresHtml(plan.figures);
  if (!plan.command.empty()) {
    html += CommandHtml(plan.command, "Command that simulates " + NumberedPlan(index));
  }
  if (!plan.csv.empty()) {
    html += fmt::format(R"(<p class="hint"><a download="{0}" href="{1}">Save {0}</a></p>)",
                        EscapeMarkup(plan.csv_name), DataAddress(plan.csv));
  }
  Table values;
  values.columns = {"key", "value"};
  for (const auto& [key, value] : plan.values) values.rows.push_back({key, value});
  const std::string title = "All figures of " + NumberedPlan(index);
  return html + fmt::format(
                    "<details><summary>All figures, as --json prints them</summary>{}"
                    "</details></section>\n",
                    TableHtml(values, title));
}

std::string TimelineOfPlan(const FrontPage& page, std::size_t index) {
  const FrontPlan& plan = page.plans[index];
  std::string html = fmt::format(R"(<div class="plan"{}>)", OfPlan(page, index));
  html += plan.run ? RunHtml(page.report, *plan.run)
                   : R"(<p class="hint">)" + EscapeMarkup(plan.missing) + "</p>";
  return html + "</div>\n";
}

// Where the time of the ranks goes, and the figures of each.
std::string TablesOfPlan(const FrontPage& page, std::size_t index) {
  const FrontPlan& plan = page.plans[index];
  if (!plan.run) return "";
  const ReportRun& run = page.report.runs[*plan.run];
  const Table use = UseTable(page.report, {&run, 1});
  return fmt::format(R"(<div class="plan"{}>)", OfPlan(page, index)) + R"(<div class="columns">)" +
         (use.rows.empty() ? "" : TableCard(use.title, use)) + RanksCard(page.report, run) +
         "</div></div>\n";
}

std::string Timelines(const FrontPage& page) {
  std::string html;
  for (std::size_t i = 0; i < page.plans.size(); ++i) {
    if (!page.plans[i].run) continue;
    const ReportRun& run = page.report.runs[*page.plans[i].run];
    html += fmt::format(R"(<div class="plan"{}>{}</div>)", OfPlan(page, i),
                        ConclusionsCard(page.report, {&run, 1}));
  }
  html += "<section class=\"card\">";
  const std::string compare = SwitchHtml("compare", "compare with " + NumberedPlan(page.first));
  html += page.report.runs.empty()
              ? "<h2>Timeline</h2>"
              : TimelineHead(page.report, page.report.runs.size() > 1 ? compare : "");
  for (std::size_t i = 0; i < page.plans.size(); ++i) html += TimelineOfPlan(page, i);
  return html + UnitHtml(page.report) + "</section>\n";
}

// The table with a first column that leads to each plan.
Table Numbered(Table table, std::size_t first) {
  table.columns.insert(table.columns.begin(), "plan");
  for (std::vector<std::string>& row : table.rows) {
    const std::string number = fmt::format("{}", ++first);
    row.insert(row.begin(), number);
    table.links.push_back("#plan=" + number);
  }
  return table;
}

}  // namespace

std::string NumberedPlan(std::size_t index) { return fmt::format("Plan {}", index + 1); }

Result<std::string> RenderFront(const FrontPage& page) {
  const ReportInput& report = page.report;
  if (!report.runs.empty()) PENSTOCK_TRY_STATUS(CheckReport(report));
  std::string html = PageStart(report.title, report.subtitle);
  html += R"(<div class="columns">)" + ChartCard(page);
  for (std::size_t i = 0; i < page.plans.size(); ++i) html += PlanCard(page, i);
  html += "</div>\n" + Timelines(page);
  std::size_t rows = 0;
  for (const Table& table : report.tables) {
    if (table.rows.empty()) continue;
    html += TableCard(table.title, Numbered(table, rows));
    rows += table.rows.size();
  }
  for (std::size_t i = 0; i < page.plans.size(); ++i) html += TablesOfPlan(page, i);
  for (const Passage& passage : report.passages) {
    html += PassageCard(passage);
  }
  html += WordsCard(report);
  return html + PageEnd("Made by Penstock.", PageScripts(report));
}

Status WriteFront(const FrontPage& page, const std::string& path) {
  PENSTOCK_TRY(const std::string text, RenderFront(page));
  return WriteFileAtomically(path, text);
}

}  // namespace penstock
