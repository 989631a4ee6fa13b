#include "report/table.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/from_chars.h"
#include "base/index.h"
#include "base/units.h"

namespace penstock {
namespace {

// Width of a cell in a terminal: its number of code points.
std::size_t WidthOf(std::string_view text) {
  return Index(std::count_if(text.begin(), text.end(),
                             [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// A number, perhaps with its sign, optionally followed by a percent sign, an x (a ratio) or a unit.
bool IsFigure(std::string_view text) {
  if (text.empty() || text == "-") return true;
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = FromChars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(Index(end - text.data()));
  return text.empty() || text == "%" || text == "x" || text.front() == ' ';
}

struct CellStyle {
  std::size_t width = 0;
  bool figure = false;  // flush right
  bool bold = false;
};
void AppendCell(std::string& line, std::string_view cell, const CellStyle& style) {
  const std::string blanks(style.width - std::min(style.width, WidthOf(cell)), ' ');
  if (style.figure) line += blanks;
  line += style.bold ? fmt::format("\x1b[1m{}\x1b[0m", cell) : cell;
  if (!style.figure) line += blanks;
}

// The rows with a mark after the best values. Other figures of such a column get a blank, so that
// digits stay aligned.
std::vector<std::vector<std::string>> MarkedRows(const Table& table,
                                                 const std::vector<bool>& figures) {
  std::set<std::size_t> marked;
  for (const auto& [row, column] : table.best) marked.insert(column);
  std::vector<std::vector<std::string>> rows = table.rows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (const std::size_t column : marked) {
      const bool best = table.best.contains({row, column});
      if (best || figures[column]) rows[row][column] += best ? '*' : ' ';
    }
  }
  return rows;
}

std::string CsvCell(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string Ratio(double measured, double predicted) {
  return predicted > 0 ? FormatNumber(measured / predicted, 3) : "-";
}

// The share of the makespan in which the rank does not compute.
double IdleShare(const RankResult& rank, double makespan) {
  return makespan > 0 ? 1 - rank.busy / makespan : 0;
}

}  // namespace

std::vector<bool> FigureColumns(const Table& table) {
  std::vector<bool> figures(table.columns.size(), true);
  for (const auto& row : table.rows) {
    for (std::size_t column = 0; column < std::min(row.size(), figures.size()); ++column) {
      figures[column] = figures[column] && IsFigure(row[column]);
    }
  }
  return figures;
}

std::string FormatTable(const Table& table, TableStyle style) {
  const std::vector<bool> figures = FigureColumns(table);
  const std::vector<std::vector<std::string>> rows = MarkedRows(table, figures);
  std::vector<std::size_t> widths;
  for (const std::string& name : table.columns) widths.push_back(WidthOf(name));
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < std::min(row.size(), widths.size()); ++column) {
      widths[column] = std::max(widths[column], WidthOf(row[column]));
    }
  }
  const auto line_of = [&](const std::vector<std::string>& cells, const auto& is_bold) {
    std::string line;
    for (std::size_t column = 0; column < std::min(cells.size(), widths.size()); ++column) {
      if (column > 0) line += "  ";
      AppendCell(line, cells[column], {widths[column], figures[column], is_bold(column)});
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line + '\n';
  };
  const auto never = [](std::size_t /*column*/) { return false; };
  std::string text;
  if (!table.title.empty()) text += table.title + '\n';
  text += line_of(table.columns, never);
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  text += line_of(rule, never);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    text += line_of(rows[row], [&](std::size_t column) {
      return style == TableStyle::kTerminal && table.best.contains({row, column});
    });
  }
  return text;
}

std::string FormatTableCsv(const Table& table) {
  std::string text;
  const auto append = [&](const std::vector<std::string>& cells) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += ',';
      text += CsvCell(cells[i]);
    }
    text += '\n';
  };
  append(table.columns);
  for (const auto& row : table.rows) append(row);
  return text;
}

std::string FormatNumber(double value, int digits) {
  constexpr double kMost = 1e15, kLeast = 1e-12;  // less is an error of rounding
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  const bool vanishes = size >= kLeast && size < 0.5 * std::pow(10, -digits);
  if (vanishes || size >= kMost) return fmt::format("{:.3g}", value);
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string FormatPercent(double fraction) {
  const std::string text = fmt::format("{:.1f}%", fraction * 100);
  return text == "-0.0%" ? "0.0%" : text;  // by rounding
}

std::string WithSign(const std::string& figure) {
  const bool positive =
      !figure.starts_with('-') && figure.find_first_of("123456789") != std::string::npos;
  return positive ? "+" + figure : figure;
}

std::string FormatAmount(double value, const std::string& unit) {
  if (unit == "s") return value == 0 ? "0 s" : FormatSeconds(value);
  if (unit == "B") {
    constexpr double kMostBytes = 9e18;  // limit of std::int64_t
    if (std::abs(value) > kMostBytes) return FormatNumber(value / 0x1p40, 1) + " TiB";
    return FormatBytes(std::llround(value));
  }
  return unit.empty() ? FormatNumber(value) : FormatNumber(value) + " " + unit;
}

Table RankTable(const SimulationResult& result, const std::string& time_unit,
                const std::string& memory_unit) {
  Table table;
  table.columns = {"rank", "busy", "first start", "last end", "idle", "peak activations"};
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    const RankResult& rank = result.ranks[r];
    table.rows.push_back({fmt::format("{}", r), FormatAmount(rank.busy, time_unit),
                          FormatAmount(rank.first_start, time_unit),
                          FormatAmount(rank.last_end, time_unit),
                          FormatPercent(IdleShare(rank, result.makespan)),
                          FormatAmount(rank.peak_memory, memory_unit)});
  }
  return table;
}

Table PredictedMeasuredTable(const SimulationResult& predicted, const SimulationResult& measured,
                             const std::string& time_unit, const std::string& memory_unit) {
  Table table;
  table.title = "Predicted and measured";
  table.columns = {"rank",     "busy: predicted",   "measured", "ratio", "bubble: predicted",
                   "measured", "memory: predicted", "measured", "ratio"};
  const auto add = [&](const std::string& name, const RankResult& p, const RankResult& m) {
    table.rows.push_back(
        {name, FormatAmount(p.busy, time_unit), FormatAmount(m.busy, time_unit),
         Ratio(m.busy, p.busy), FormatPercent(IdleShare(p, predicted.makespan)),
         FormatPercent(IdleShare(m, measured.makespan)), FormatAmount(p.peak_memory, memory_unit),
         FormatAmount(m.peak_memory, memory_unit), Ratio(m.peak_memory, p.peak_memory)});
  };
  const std::size_t ranks = std::min(predicted.ranks.size(), measured.ranks.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    add(fmt::format("{}", r), predicted.ranks[r], measured.ranks[r]);
  }
  table.rows.push_back({"step", FormatAmount(predicted.makespan, time_unit),
                        FormatAmount(measured.makespan, time_unit),
                        Ratio(measured.makespan, predicted.makespan),
                        FormatPercent(predicted.bubble), FormatPercent(measured.bubble),
                        FormatAmount(predicted.peak_memory, memory_unit),
                        FormatAmount(measured.peak_memory, memory_unit),
                        Ratio(measured.peak_memory, predicted.peak_memory)});
  return table;
}

}  // namespace penstock
