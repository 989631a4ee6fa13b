#include "monitor/status_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <vector>

#include "base/files.h"
#include "monitor/status_text.h"
#include "report/page/page_parts.h"

namespace penstock {
namespace {

constexpr std::size_t kMostPoints = 1000;  // of the loss curve

std::vector<KeyFigure> FiguresOf(const RunStatus& status) {
  if (status.metrics.empty()) return {};
  const std::string recent = fmt::format("last {} steps", kRecentSteps);
  std::vector<KeyFigure> figures = {
      {"step", fmt::format("{}", status.done), fmt::format("of {}", status.run.steps)},
      {"loss", status.loss ? fmt::format("{:.3f}", *status.loss) : "-", "mean of the " + recent},
      {"tokens per second", fmt::format("{:.0f}", status.tokens_per_second), recent},
      {"bubble", FormatPercent(status.bubble), "of the busiest rank"},
  };
  if (status.seconds_left) {
    figures.push_back({"time left", FormatAmount(std::round(*status.seconds_left), "s"),
                       FormatAmount(status.step_seconds, "s") + " per step"});
  }
  return figures;
}

// Reloads the page until the reader stops it, who may be in the middle of a table.
std::string Reload(double seconds) {
  return fmt::format(
      R"(<p><label><input type="checkbox" id="reload" checked> reload every {0:.0f} s</label></p>)"
      "\n<script>setInterval(() => {{ if (document.getElementById('reload').checked) "
      "location.reload(); }}, 1000 * {0:.0f});</script>\n",
      std::max(1.0, std::ceil(seconds)));
}

std::string Cards(const RunStatus& status) {
  std::string html;
  if (!status.stragglers.empty()) {
    Table table{"", {"rank", "straggler"}, {}};
    for (const Straggler& straggler : status.stragglers) {
      table.rows.push_back({fmt::format("{}", straggler.rank), StragglerText(straggler)});
    }
    html += TableCard("Stragglers", table);
  }
  html += "<div class=\"columns\">";
  if (!status.metrics.empty()) {
    const Plot plot{
        "Loss", "step", "nats per byte", {{"training", LossPoints(status.metrics, kMostPoints)}}};
    html += PlotCard(plot);
  }
  if (!status.ranks.empty()) html += TableCard("Ranks", RanksTable(status));
  return html + "</div>\n";
}

}  // namespace

std::string StatusPage(const RunStatus& status, double reload_seconds, const std::string& written) {
  const std::string reload = status.state != RunState::kFinished ? Reload(reload_seconds) : "";
  const std::string title = status.run.name.empty() ? status.folder : status.run.name;
  std::string subtitle = fmt::format("{}: {}", StateName(status.state), StateText(status));
  return PageStart(title, subtitle) + reload + FiguresHtml(FiguresOf(status)) + Cards(status) +
         PageEnd(fmt::format("Written at {} by penstock watch.", written));
}

Status WriteStatusPage(const RunStatus& status, double reload_seconds, const std::string& path) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return WriteFileAtomically(path, StatusPage(status, reload_seconds, text.data()));
}

}  // namespace penstock
