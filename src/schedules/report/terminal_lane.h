// One rank's lines of a picture in characters. Private to report/.
#pragma once

#include <string>
#include <vector>

#include "report/terminal.h"

namespace penstock {

// The width of the cells of a picture: cell c shows the times [c, c + 1) / scale.
struct CellGrid {
  int cells = 0;
  double scale = 1;  // cells per unit of time

  double TimeAt(int cell) const { return (cell + 0.5) / scale; }
};

inline constexpr int kIdleCell = -1;
// Returns the action that fills most of each cell, or kIdleCell.
std::vector<int> FillCells(const Lane& lane, const std::vector<Span>& spans, const CellGrid& grid);

// "w" for warm-up.
char BubbleLetter(BubbleCause cause);

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

}  // namespace penstock
