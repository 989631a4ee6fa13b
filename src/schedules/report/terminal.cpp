#include "report/terminal.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"
#include "report/palette.h"
#include "report/table.h"
#include "report/terminal_lane.h"
#include "schedule/pairs.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr int kLeastCells = 10;
constexpr std::size_t kIdleColumn = 7;  // "  24.5%"

// Cells per unit of time. The shortest action gets a whole number of cells if it gets any, so that
// equal actions look equal.
double ScaleFor(const Schedule& schedule, const Timeline& timeline, double end, int cells) {
  double shortest = end;
  for (std::size_t r = 0; r < timeline.spans.size(); ++r) {
    for (std::size_t i = 0; i < timeline.spans[r].size(); ++i) {
      const Span& span = timeline.spans[r][i];
      if (!IsDrawn(schedule.lanes[r][i], span) || span.end <= span.start) continue;
      shortest = std::min(shortest, span.end - span.start);
    }
  }
  const double scale = cells / end;
  const double whole = std::floor(scale * shortest + 1e-9);
  return whole >= 1 ? whole / shortest : scale;
}

std::string Axis(const CellGrid& grid, const std::string& indent) {
  constexpr int kCellsATick = 10;
  const double step = TickStep(grid.cells / grid.scale, std::max(1, grid.cells / kCellsATick));
  std::string line(Index(grid.cells), ' ');
  for (int tick = 0; tick * step * grid.scale < grid.cells; ++tick) {
    const std::string text = FormatNumber(tick * step, 6);
    const std::size_t at = std::lround(tick * step * grid.scale);
    if (at + text.size() <= line.size()) line.replace(at, text.size(), text);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return indent + line + '\n';
}

// An entry of the legend and the columns that it takes.
struct LegendItem {
  std::string text;
  std::size_t columns = 0;
};

LegendItem Plain(const std::string& text) { return {text, text.size()}; }

std::vector<LegendItem> OpsOf(const Schedule& schedule, const Timeline& timeline,
                              const LaneText& text, bool color) {
  std::vector<LegendItem> items;
  for (const Op op : DrawnOps(schedule, timeline)) {
    if (!color) {
      items.push_back(Plain(fmt::format("{} {}", OpLetter(op), OpName(op))));
      continue;
    }
    LegendItem item = Plain(fmt::format(" {} {}", OpText(op), OpName(op)));
    std::string swatches;
    for (int chunk = 0; chunk < (IsCompute(op) ? text.chunks() : 1); ++chunk) {
      swatches += text.Swatch(op, chunk);
      item.columns += 2;
    }
    item.text.insert(0, swatches);
    items.push_back(std::move(item));
  }
  return items;
}

// The causes that occur, with their part of the time of all ranks.
void AddCauses(const TerminalDetails& details, double end, std::vector<LegendItem>& items) {
  const TimeByCause all = TotalsOf(details.bubbles);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] == 0) continue;
    const auto cause = static_cast<BubbleCause>(i);
    const double share = all[i] / (end * static_cast<double>(details.bubbles.size()));
    items.push_back(
        Plain(fmt::format("{} {} {}", BubbleLetter(cause), NameOf(cause), FormatPercent(share))));
  }
}

std::string Legend(const Schedule& schedule, const Timeline& timeline, const LaneText& text,
                   const TerminalStyle& style, const TerminalDetails& details) {
  const bool color = style.colors != ColorDepth::kNone;
  std::vector<LegendItem> items = OpsOf(schedule, timeline, text, color);
  if (!color && HasPairs(schedule)) items.push_back(Plain("X overlapped pair"));
  const std::string lighter =
      LighterText(schedule.placement.chunks() > 1, schedule.placement.replicas() > 1);
  if (color && !lighter.empty()) items.push_back(Plain(lighter));
  if (details.bubbles.empty() && !color) items.push_back(Plain(". idle"));
  AddCauses(details, EndOf(timeline), items);
  if (!details.critical_path.empty()) {
    items.push_back({style.unicode ? "▔ critical path" : "^ critical path", 15});
  }
  constexpr std::size_t kBetween = 3;
  std::string lines;
  std::size_t columns = 0;
  for (const LegendItem& item : items) {
    const bool fits = columns + kBetween + item.columns <= Index(style.width);
    if (columns > 0) lines += fits ? std::string(kBetween, ' ') : "\n";
    columns = columns > 0 && fits ? columns + kBetween + item.columns : item.columns;
    lines += item.text;
  }
  return lines + '\n';
}

double MostMemory(const TerminalDetails& details) {
  double most = 0;
  for (const MemoryCurve& curve : details.memory) most = std::max(most, PeakOf(curve));
  return most;
}

// The lines of all ranks.
class Lines {
 public:
  Lines(const Schedule& schedule, const Timeline& timeline, const LaneText& text,
        const TerminalDetails& details, const CellGrid& grid)
      : schedule_(schedule),
        timeline_(timeline),
        text_(text),
        details_(details),
        grid_(grid),
        most_(MostMemory(details)),
        digits_(fmt::format("{}", std::max(0, schedule.ranks() - 1)).size()) {}

  std::string OfRank(std::size_t rank, double end) const {
    static const std::vector<Bubble> kNone;
    const Lane& lane = schedule_.lanes[rank];
    const std::vector<int> owner = FillCells(lane, timeline_.spans[rank], grid_);
    const auto& bubbles = details_.bubbles.empty() ? kNone : details_.bubbles[rank];
    std::string lines = fmt::format("rank {:>{}} {}{:>{}}\n", rank, digits_,
                                    text_.Actions(lane, owner, bubbles, grid_),
                                    FormatPercent(IdleShareOf(rank, end)), kIdleColumn);
    if (!details_.critical_path.empty()) lines += OfPath(rank, owner);
    if (!details_.memory.empty()) {
      lines += Indent() + text_.Memory(details_.memory[rank], most_, grid_) + "  " +
               FormatAmount(PeakOf(details_.memory[rank]), details_.memory_unit) + '\n';
    }
    return lines;
  }
  std::string Indent() const { return std::string(std::string("rank ").size() + digits_ + 1, ' '); }

 private:
  double IdleShareOf(std::size_t rank, double end) const {
    double busy = 0;
    for (std::size_t i = 0; i < schedule_.lanes[rank].size(); ++i) {
      const Span& span = timeline_.spans[rank][i];
      if (IsCompute(schedule_.lanes[rank][i])) busy += span.end - span.start;
    }
    return 1 - busy / end;
  }
  std::string OfPath(std::size_t rank, const std::vector<int>& owner) const {
    std::vector<char> on_path(schedule_.lanes[rank].size());
    for (const ActionAt& at : details_.critical_path) {
      if (Index(at.rank) == rank) on_path[Index(at.position)] = 1;
    }
    const bool any = std::ranges::any_of(on_path, [](char set) { return set != 0; });
    std::string marks = any ? text_.Path(owner, on_path) : "";
    marks.erase(marks.find_last_not_of(' ') + 1);
    return marks.empty() ? "" : Indent() + marks + '\n';
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const LaneText& text_;
  const TerminalDetails& details_;
  const CellGrid& grid_;
  const double most_;
  const std::size_t digits_;
};

}  // namespace

Result<std::string> RenderTerminal(const Schedule& schedule, const Timeline& timeline,
                                   const TerminalStyle& style, const TerminalDetails& details) {
  PENSTOCK_TRY_STATUS(RequireSpans(schedule, timeline));
  const double end = EndOf(timeline);
  if (!(end > 0)) return std::string("no action takes time: there is nothing to draw\n");
  const LaneText lane_text(schedule, style);
  CellGrid grid;
  const Lines lines(schedule, timeline, lane_text, details, grid);
  constexpr std::size_t kPeakColumn = 10;  // "  24.5 GiB"
  const std::size_t right = details.memory.empty() ? kIdleColumn : kPeakColumn;
  const int cells =
      std::max(kLeastCells, style.width - static_cast<int>(lines.Indent().size() + right));
  grid.scale = ScaleFor(schedule, timeline, end, cells);
  grid.cells = std::min(cells, static_cast<int>(std::ceil(end * grid.scale - 1e-9)));

  std::string text = Axis(grid, lines.Indent());
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    text += lines.OfRank(rank, end);
  }
  text += fmt::format("{:>{}}\n", "idle", lines.Indent().size() + Index(grid.cells) + kIdleColumn);
  return text + Legend(schedule, timeline, lane_text, style, details);
}

}  // namespace penstock
