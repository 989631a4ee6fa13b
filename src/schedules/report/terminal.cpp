#include "report/terminal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "report/palette.h"
#include "report/table.h"
#include "schedule/pairs.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// The width of the cells of a picture: cell c shows the times [c, c + 1) / scale.
struct CellGrid {
  int cells = 0;
  double scale = 1;  // cells per unit of time

  double TimeAt(int cell) const { return (cell + 0.5) / scale; }
};

constexpr int kIdleCell = -1;

class LaneText {
 public:
  LaneText(const Schedule& schedule, const TerminalStyle& style)
      : schedule_(schedule), chunks_(MostChunks(schedule.placement)), style_(style) {}

  // The actions; idle cells show the causes of `bubbles`, if any.
  std::string Actions(const Lane& lane, const std::vector<int>& owner,
                      const std::vector<Bubble>& bubbles, const CellGrid& grid) const;
  // Marks below the cells of actions for which on_path[position] is set.
  std::string Path(const std::vector<int>& owner, const std::vector<char>& on_path) const;
  // The memory, as levels of `most`.
  std::string Memory(const MemoryCurve& curve, double most, const CellGrid& grid) const;

  std::string Swatch(Op op, int chunk) const;
  int chunks() const { return chunks_; }

 private:
  std::string Block(const Action& action, std::size_t width) const;
  std::string Plain(const Action& action, const std::string& number, std::size_t width) const;
  std::string Colored(const Action& action, const std::string& number, std::size_t width) const;
  std::string Idle(std::size_t begin, std::size_t end, const std::vector<Bubble>& bubbles,
                   const CellGrid& grid) const;
  // The text in this color, or unchanged in a picture without colors.
  std::string InColor(const std::string& text, Color color) const;
  Color ColorOf(const Part& part) const;

  const Schedule& schedule_;
  const int chunks_;
  const TerminalStyle& style_;
};

constexpr Color kIdleTextColor = {0x8a, 0x93, 0xa0};
constexpr Color kPathColor = {0xd0, 0x3a, 0x4b};
constexpr Color kMemoryColor = {0x7c, 0x5c, 0xd6};

std::string Repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

// Returns the action that fills most of each cell, or kIdleCell.
std::vector<int> FillCells(const Lane& lane, const std::vector<Span>& spans, const CellGrid& grid) {
  std::vector<int> owner(Index(grid.cells), kIdleCell);
  std::vector<double> most(owner.size(), 0);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    if (!IsDrawn(lane[i], spans[i])) continue;
    const double begin = spans[i].start * grid.scale;
    const double end = spans[i].end * grid.scale;
    for (int cell = static_cast<int>(begin); cell < std::min(end, double(grid.cells)); ++cell) {
      const double share = std::min(end, cell + 1.0) - std::max(begin, double(cell));
      if (share <= most[Index(cell)]) continue;
      most[Index(cell)] = share;
      owner[Index(cell)] = static_cast<int>(i);
    }
  }
  return owner;
}

// "w" for warm-up.
char BubbleLetter(BubbleCause cause) {
  constexpr std::array<char, kBubbleCauses> kLetters = {'w', 'd', 'c', 'x', 'i', 'm'};
  return kLetters[Index(cause)];
}

std::string LaneText::Actions(const Lane& lane, const std::vector<int>& owner,
                              const std::vector<Bubble>& bubbles, const CellGrid& grid) const {
  std::string line;
  for (std::size_t begin = 0; begin < owner.size();) {
    std::size_t end = begin;
    while (end < owner.size() && owner[end] == owner[begin]) ++end;
    line += owner[begin] == kIdleCell ? Idle(begin, end, bubbles, grid)
                                      : Block(lane[Index(owner[begin])], end - begin);
    begin = end;
  }
  return line;
}

std::string LaneText::Idle(std::size_t begin, std::size_t end, const std::vector<Bubble>& bubbles,
                           const CellGrid& grid) const {
  const char empty = style_.colors == ColorDepth::kNone ? '.' : ' ';
  std::string text;
  char last = empty;
  for (std::size_t cell = begin; cell < end; ++cell) {
    const double time = grid.TimeAt(static_cast<int>(cell));
    const auto bubble = std::ranges::upper_bound(bubbles, time, {}, &Bubble::end);
    const bool inside = bubble != bubbles.end() && bubble->start <= time;
    const char letter = inside ? BubbleLetter(bubble->cause) : empty;
    text += letter == last ? '.' : letter;  // the letter is where the cause begins
    last = letter;
  }
  if (bubbles.empty()) text.assign(end - begin, empty);
  return InColor(text, kIdleTextColor);
}

std::string LaneText::Path(const std::vector<int>& owner, const std::vector<char>& on_path) const {
  std::string line;
  for (std::size_t begin = 0; begin < owner.size();) {
    std::size_t end = begin;
    while (end < owner.size() && owner[end] == owner[begin]) ++end;
    const bool marked = owner[begin] != kIdleCell && on_path[Index(owner[begin])] != 0;
    const std::string mark = style_.unicode ? "▔" : "^";
    line +=
        marked ? InColor(Repeated(mark, end - begin), kPathColor) : std::string(end - begin, ' ');
    begin = end;
  }
  return line;
}

std::string LaneText::Memory(const MemoryCurve& curve, double most, const CellGrid& grid) const {
  static constexpr std::array<const char*, 9> kBars = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string line;
  std::size_t next = 0;
  double held = 0;
  for (int cell = 0; cell < grid.cells; ++cell) {
    double top = held;
    for (; next < curve.size() && curve[next].time < (cell + 1) / grid.scale; ++next) {
      held = curve[next].amount;
      top = std::max(top, held);
    }
    const double share = most > 0 ? std::clamp(top / most, 0.0, 1.0) : 0;
    if (style_.unicode) {
      line += kBars[Index(static_cast<int>(std::ceil(share * 8 - 1e-9)))];
    } else {
      const int digit = static_cast<int>(std::ceil(share * 9 - 1e-9));
      line += digit == 0 ? ' ' : static_cast<char>('0' + digit);
    }
  }
  return InColor(line, kMemoryColor);
}

std::string LaneText::Swatch(Op op, int chunk) const {
  const Color color = BlockColor(op, chunk, chunks_);
  return SetColors(TextColor(color), color, style_.colors) + "  " + kResetColors;
}

std::string LaneText::Block(const Action& action, std::size_t width) const {
  const std::string number =
      HasMicrobatch(action.first.op) ? MicrobatchText(schedule_, action.first.microbatch) : "";
  return style_.colors == ColorDepth::kNone ? Plain(action, number, width)
                                            : Colored(action, number, width);
}

// "F3=": the letter at the start separates adjacent blocks.
std::string LaneText::Plain(const Action& action, const std::string& number,
                            std::size_t width) const {
  std::string text(1, action.is_pair() ? 'X' : OpLetter(action.first.op));
  if (text.size() + number.size() <= width) text += number;
  text.resize(width, '=');
  return text;
}

std::string LaneText::Colored(const Action& action, const std::string& number,
                              std::size_t width) const {
  const Color first = ColorOf(action.first);
  if (action.is_pair() && style_.unicode) {
    return SetColors(first, ColorOf(action.second), style_.colors) + Repeated("▀", width) +
           kResetColors;
  }
  // Too narrow for the whole number: the last digit still distinguishes neighbors.
  std::string text = number.size() <= width ? number : number.substr(number.size() - 1);
  text.resize(width, ' ');
  if (action.is_pair()) {  // one half after the other
    const std::size_t half = width / 2;
    const Color second = ColorOf(action.second);
    return SetColors(TextColor(first), first, style_.colors) + text.substr(0, width - half) +
           SetColors(TextColor(second), second, style_.colors) + std::string(half, ' ') +
           kResetColors;
  }
  return SetColors(TextColor(first), first, style_.colors) + text + kResetColors;
}

std::string LaneText::InColor(const std::string& text, Color color) const {
  const bool blank = text.find_first_not_of(' ') == std::string::npos;
  if (style_.colors == ColorDepth::kNone || blank) return text;
  return SetTextColor(color, style_.colors) + text + kResetColors;
}

Color LaneText::ColorOf(const Part& part) const {
  return BlockColor(part.op, ChunkOf(schedule_.placement, part.stage), chunks_);
}

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
