#include "monitor/status_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "base/text/quote.h"
#include "base/units.h"

namespace penstock {
namespace {

constexpr std::size_t kMostBars = 60;

// Draws values as bars of eight heights.
std::string Sparkline(const std::vector<std::pair<double, double>>& points) {
  static constexpr std::array kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (points.empty()) return "";
  const auto by_value = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [low, high] = std::minmax_element(points.begin(), points.end(), by_value);
  const double range = high->second - low->second;
  std::string text;
  for (const auto& point : points) {
    const double height = range > 0 ? (point.second - low->second) / range : 0;
    text += kBars[std::min(kBars.size() - 1, static_cast<std::size_t>(height * kBars.size()))];
  }
  return text;
}

std::string TimeText(double seconds) { return seconds >= 1 ? FormatSeconds(seconds) : "0 s"; }

std::string ProgressText(const RunStatus& status) {
  if (status.state == RunState::kWaiting || status.state == RunState::kStarting) return "";
  if (status.run.seconds > 0) {
    return fmt::format("step {}, {} of {}", status.done, FormatAmount(status.seconds, "s"),
                       FormatAmount(status.run.seconds, "s"));
  }
  return fmt::format("step {}/{}", status.done, status.run.steps);
}

std::string LossText(const RunStatus& status) {
  if (!status.loss) return "loss -";
  return fmt::format("loss {:.3f}", *status.loss);
}

std::string LossTrend(const RunStatus& status) {
  if (!status.loss || !status.earlier_loss) return "";
  return fmt::format(" ({:+.3f} in {} steps)", *status.loss - *status.earlier_loss, kRecentSteps);
}

std::string StragglersText(const RunStatus& status) {
  std::string text;
  for (const Straggler& straggler : status.stragglers) {
    text += fmt::format("{}rank {} {}", text.empty() ? "" : "; ", straggler.rank,
                        StragglerText(straggler));
  }
  return text;
}

// Cuts the line off after `columns` characters.
std::string Fit(std::string_view line, int columns) {
  int column = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(line[i]) >> 6) != 2;
    if (starts_character && ++column > columns) return std::string(line.substr(0, i));
  }
  return std::string(line);
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> FigureLines(const RunStatus& status, int columns) {
  std::vector<std::string> lines;
  std::string loss = LossText(status) + LossTrend(status);
  const auto bars = static_cast<std::size_t>(
      std::clamp(columns - static_cast<int>(loss.size()) - 2, 0, static_cast<int>(kMostBars)));
  lines.push_back(loss + "  " + Sparkline(LossPoints(status.metrics, bars)));
  std::string speed = fmt::format("{:.0f} tokens/s  bubble {}", status.tokens_per_second,
                                  FormatPercent(status.bubble));
  if (status.seconds_left) speed += fmt::format("  {} left", TimeText(*status.seconds_left));
  if (status.clipped > 0) speed += fmt::format("  {} steps clipped", status.clipped);
  if (status.skipped > 0) speed += fmt::format("  {} steps skipped", status.skipped);
  lines.push_back(std::move(speed));
  if (!status.ranks.empty()) {
    lines.emplace_back();
    for (std::string& line : LinesOf(FormatTable(RanksTable(status)))) {
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace

std::string StateText(const RunStatus& status) {
  const std::string age = status.age ? TimeText(*status.age) : "";
  switch (status.state) {
    case RunState::kWaiting:
      return fmt::format("waiting for a run in {}", Printable(status.folder));
    case RunState::kStarting:
      return "starting: no step has ended yet";
    case RunState::kRunning:
      return fmt::format("{}last step {} ago", status.stalled ? "stalled: " : "", age);
    case RunState::kStopped:
      return status.age ? fmt::format("stopped {} ago; resume=auto continues it", age) : "stopped";
    case RunState::kFinished:
      return fmt::format("finished {} ago", age);
  }
  return "";
}

std::string StragglerText(const Straggler& straggler) {
  return fmt::format("takes {:.2f} times as long as {}", straggler.factor,
                     straggler.than_peers ? "ranks with the same layers" : "before");
}

Table RanksTable(const RunStatus& status) {
  Table table{"", {"rank", "busy", "bubble", "peak activations"}, {}};
  for (std::size_t rank = 0; rank < status.ranks.size(); ++rank) {
    const RankMetric& figures = status.ranks[rank];
    table.rows.push_back({fmt::format("{}", rank), FormatAmount(figures.busy, "s"),
                          FormatPercent(figures.bubble),
                          FormatBytes(figures.peak_activation_bytes)});
  }
  return table;
}

std::vector<std::pair<double, double>> LossPoints(std::span<const StepMetric> metrics,
                                                  std::size_t most) {
  std::vector<std::pair<double, double>> points;
  if (most == 0) return points;
  const std::size_t size = std::max<std::size_t>(1, (metrics.size() + most - 1) / most);
  for (std::size_t begin = 0; begin < metrics.size(); begin += size) {
    double sum = 0;
    int count = 0;
    const std::size_t end = std::min(begin + size, metrics.size());
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(metrics[i].loss)) continue;
      sum += metrics[i].loss;
      ++count;
    }
    if (count > 0) points.emplace_back(static_cast<double>(metrics[end - 1].step), sum / count);
  }
  return points;
}

std::string StatusText(const RunStatus& status, const TextSize& size) {
  std::string title = Printable(status.run.name.empty() ? status.folder : status.run.name);
  const std::string progress = ProgressText(status);
  if (!progress.empty()) title += "  " + progress;
  std::vector<std::string> lines = {title + "  " + StateText(status)};
  if (!status.metrics.empty()) {
    for (std::string& line : FigureLines(status, size.columns)) lines.push_back(std::move(line));
  }
  const std::string stragglers = StragglersText(status);
  const std::size_t after = stragglers.empty() ? 0 : 2;
  if (size.lines > 0 && lines.size() + after > Index(size.lines)) {
    const std::size_t kept = Index(size.lines) - std::min(Index(size.lines), after + 1);
    const std::string rest =
        fmt::format("... {} more; the JSON output has all", lines.size() - kept);
    lines.resize(kept);
    lines.push_back(rest);
  }
  if (!stragglers.empty()) {
    lines.emplace_back();
    lines.push_back("stragglers: " + stragglers);
  }
  std::string text;
  for (const std::string& line : lines) text += Fit(line, size.columns) + '\n';
  return text;
}

std::string StatusLine(const RunStatus& status) {
  std::string line = ProgressText(status);
  if (!status.metrics.empty()) {
    line += fmt::format("  {}  {:.0f} tokens/s  bubble {}", LossText(status),
                        status.tokens_per_second, FormatPercent(status.bubble));
    std::int64_t peak = 0;
    for (const RankMetric& rank : status.ranks) peak = std::max(peak, rank.peak_activation_bytes);
    if (peak > 0) line += fmt::format("  activations {}", FormatBytes(peak));
    if (status.seconds_left) line += fmt::format("  {} left", TimeText(*status.seconds_left));
  }
  if (status.state != RunState::kRunning || status.stalled) {
    line += (line.empty() ? "" : "  ") + StateText(status);
  }
  const std::string stragglers = StragglersText(status);
  return stragglers.empty() ? line : line + "  stragglers: " + stragglers;
}

}  // namespace penstock
