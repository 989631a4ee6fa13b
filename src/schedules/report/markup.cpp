#include "report/markup.h"

#include <algorithm>
#include <utility>

namespace penstock {

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string RunFigures(const ReportInput& input, const ReportRun& run) {
  std::string text =
      fmt::format("makespan {}, bubble {}", FormatAmount(run.result.makespan, input.time_unit),
                  FormatPercent(run.result.bubble));
  const double activations = run.result.peak_memory;
  double all = activations;
  for (const RankMemory& rank : run.memory_by_kind) all = std::max(all, rank.peak.amount);
  if (all == 0) return text;
  text += ", peak memory " + FormatAmount(all, input.memory_unit);
  if (all == activations) return text;
  return text + fmt::format(" (activations {})", FormatAmount(activations, input.memory_unit));
}

const Schedule& ScheduleOf(const ReportInput& input, const ReportRun& run) {
  return run.schedule != nullptr ? *run.schedule : *input.schedule;
}

std::vector<LegendEntry> LegendOf(const ReportInput& input) {
  std::vector<LegendEntry> legend;
  for (const ReportRun& run : input.runs) {
    const Schedule& schedule = ScheduleOf(input, run);
    const int chunks = std::max(1, MostChunks(schedule.placement));
    for (const Op op : DrawnOps(schedule, *run.timeline)) {
      std::vector<Color> colors;
      for (int chunk = 0; chunk < (IsCompute(op) ? chunks : 1); ++chunk) {
        colors.push_back(BlockColor(op, chunk, chunks));
      }
      const auto at = std::find_if(legend.begin(), legend.end(),
                                   [op](const LegendEntry& entry) { return entry.op == op; });
      if (at == legend.end()) {
        legend.push_back({op, std::move(colors)});
      } else if (colors.size() > at->colors.size()) {
        at->colors = std::move(colors);
      }
    }
  }
  std::sort(legend.begin(), legend.end(),
            [](const LegendEntry& a, const LegendEntry& b) { return a.op < b.op; });
  return legend;
}

Status CheckReport(const ReportInput& input) {
  if (input.schedule == nullptr || input.runs.empty()) {
    return InvalidArgument("a report needs a schedule and at least one run");
  }
  for (const ReportRun& run : input.runs) {
    const Schedule& schedule = ScheduleOf(input, run);
    const std::size_t ranks = schedule.ranks();
    if (ranks == 0) return InvalidArgument("run '{}' has no ranks", run.label);
    if (run.timeline == nullptr) return InvalidArgument("run '{}' has no timeline", run.label);
    PENSTOCK_TRY_STATUS(RequireSpans(schedule, *run.timeline));
    if (run.result.ranks.size() != ranks || (!run.memory.empty() && run.memory.size() != ranks)) {
      return InvalidArgument("run '{}' does not have the figures of all {} ranks", run.label,
                             ranks);
    }
    if (input.by_rank && schedule.ranks() != input.schedule->ranks()) {
      return InvalidArgument(
          "run '{}' has {} ranks, the report's schedule {}: not comparable by rank", run.label,
          ranks, input.schedule->ranks());
    }
  }
  return {};
}

}  // namespace penstock
