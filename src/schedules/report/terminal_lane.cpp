#include "report/terminal_lane.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/index.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr Color kIdleTextColor = {0x8a, 0x93, 0xa0};
constexpr Color kPathColor = {0xd0, 0x3a, 0x4b};
constexpr Color kMemoryColor = {0x7c, 0x5c, 0xd6};

std::string Repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

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

}  // namespace penstock
