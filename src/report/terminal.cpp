#include "report/terminal.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/index.h"
#include "report/palette.h"
#include "report/table.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr int kIdle = -1;
constexpr int kLeastCells = 10;
constexpr std::size_t kIdleColumn = 7;  // "  24.5%"

// The action that fills most of each character cell of a lane; kIdle if none does.
std::vector<int> FillCells(const Lane& lane, const std::vector<Span>& spans, double scale,
                           int cells) {
  std::vector<int> owner(cells, kIdle);
  std::vector<double> most(owner.size(), 0);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (!IsDrawn(lane[i], spans[i])) continue;
    const double begin = spans[i].start * scale;
    const double end = spans[i].end * scale;
    for (int cell = static_cast<int>(begin); cell < std::min(end, double(cells)); ++cell) {
      const double share = std::min(end, cell + 1.0) - std::max(begin, double(cell));
      const std::size_t at = cell;
      if (share <= most[at]) continue;
      most[at] = share;
      owner[at] = static_cast<int>(i);
    }
  }
  return owner;
}

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

std::string Escape(Color background) {
  const Color text = TextColor(background);
  return fmt::format("\x1b[38;5;{};48;5;{}m", TerminalColor(text), TerminalColor(background));
}

class LaneText {
 public:
  LaneText(const Schedule& schedule, bool color)
      : schedule_(schedule), chunks_(MostChunks(schedule.placement)), color_(color) {}

  std::string Draw(const Lane& lane, const std::vector<int>& owner) const {
    std::string line;
    for (std::size_t begin = 0; begin < owner.size();) {
      std::size_t end = begin;
      while (end < owner.size() && owner[end] == owner[begin]) ++end;
      const std::size_t width = end - begin;
      if (owner[begin] == kIdle) {
        line.append(width, color_ ? ' ' : '.');
      } else {
        line += Block(lane[owner[begin]], width);
      }
      begin = end;
    }
    return line;
  }

  std::string Swatch(Op op, int chunk) const {
    return Escape(BlockColor(op, chunk, chunks_)) + "  \x1b[0m";
  }
  int chunks() const { return chunks_; }

 private:
  std::string Block(const Action& action, std::size_t width) const {
    const std::string number =
        HasMicrobatch(action.first.op) ? MicrobatchText(schedule_, action.first.microbatch) : "";
    return color_ ? Colored(action, number, width) : Plain(action, number, width);
  }

  // "F3=": the letter at the start separates adjacent blocks.
  std::string Plain(const Action& action, const std::string& number, std::size_t width) const {
    std::string text(1, action.is_pair() ? 'X' : OpLetter(action.first.op));
    if (text.size() + number.size() <= width) text += number;
    text.resize(width, '=');
    return text;
  }

  std::string Colored(const Action& action, const std::string& number, std::size_t width) const {
    const Color first = ColorOf(action.first);
    if (action.is_pair()) {
      std::string halves;
      for (std::size_t i = 0; i < width; ++i) halves += "▀";
      return fmt::format("\x1b[38;5;{};48;5;{}m{}\x1b[0m", TerminalColor(first),
                         TerminalColor(ColorOf(action.second)), halves);
    }
    // Too narrow for the whole number: the last digit still distinguishes neighbors.
    std::string text = number.size() <= width ? number : number.substr(number.size() - 1);
    text.resize(width, ' ');
    return Escape(first) + text + "\x1b[0m";
  }

  Color ColorOf(const Part& part) const {
    return BlockColor(part.op, ChunkOf(schedule_.placement, part.stage), chunks_);
  }

  const Schedule& schedule_;
  const int chunks_;
  const bool color_;
};

std::string Axis(double scale, int cells, const std::string& indent) {
  constexpr int kCellsATick = 10;
  const double step = TickStep(cells / scale, std::max(1, cells / kCellsATick));
  std::string line(Index(cells), ' ');
  for (int tick = 0; tick * step * scale < cells; ++tick) {
    const std::string text = FormatNumber(tick * step, 6);
    const std::size_t at = std::lround(tick * step * scale);
    if (at + text.size() <= line.size()) line.replace(at, text.size(), text);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return indent + line + '\n';
}

std::string Legend(const Schedule& schedule, const Timeline& timeline, const LaneText& text,
                   bool color) {
  std::string line;
  for (const Op op : DrawnOps(schedule, timeline)) {
    if (!line.empty()) line += "   ";
    if (color) {
      for (int chunk = 0; chunk < (IsCompute(op) ? text.chunks() : 1); ++chunk) {
        line += text.Swatch(op, chunk);
      }
      line += fmt::format(" {} {}", OpText(op), OpName(op));
    } else {
      line += fmt::format("{} {}", OpLetter(op), OpName(op));
    }
  }
  const bool pairs =
      std::any_of(schedule.lanes.begin(), schedule.lanes.end(), [](const Lane& lane) {
        return std::any_of(lane.begin(), lane.end(),
                           [](const Action& action) { return action.is_pair(); });
      });
  if (!color) line += pairs ? "   X overlapped pair   . idle" : "   . idle";
  if (color && text.chunks() > 1) line += "   lighter: later chunks";
  return line + '\n';
}

}  // namespace

Result<std::string> RenderTerminal(const Schedule& schedule, const Timeline& timeline,
                                   const TerminalStyle& style) {
  PENSTOCK_TRY_STATUS(RequireSpans(schedule, timeline));
  const std::size_t digits = fmt::format("{}", std::max(0, schedule.ranks() - 1)).size();
  const std::size_t indent = std::string("rank ").size() + digits + 1;
  const int cells = std::max(kLeastCells, style.width - static_cast<int>(indent + kIdleColumn));
  const double end = EndOf(timeline);
  if (!(end > 0)) return std::string("no action takes time: there is nothing to draw\n");
  const double scale = ScaleFor(schedule, timeline, end, cells);
  const int used = std::min(cells, static_cast<int>(std::ceil(end * scale - 1e-9)));

  const LaneText lane_text(schedule, style.color);
  std::string text = Axis(scale, used, std::string(indent, ' '));
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    double busy = 0;
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Span& span = timeline.spans[r][i];
      if (IsCompute(schedule.lanes[r][i])) busy += span.end - span.start;
    }
    const auto owner = FillCells(schedule.lanes[r], timeline.spans[r], scale, used);
    text +=
        fmt::format("rank {:>{}} {}{:>{}}\n", r, digits, lane_text.Draw(schedule.lanes[r], owner),
                    FormatPercent(1 - busy / end), kIdleColumn);
  }
  text += fmt::format("{:>{}}\n", "idle", indent + Index(used) + kIdleColumn);
  return text + Legend(schedule, timeline, lane_text, style.color);
}

}  // namespace penstock
