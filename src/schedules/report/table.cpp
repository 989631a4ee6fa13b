#include "report/table.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>

#include "base/from_chars.h"
#include "base/index.h"
#include "base/units.h"
#include "report/table_fit.h"

namespace penstock {
namespace {

// A line of a cell of several lines; empty after the last one.
std::string_view LineOf(std::string_view cell, std::size_t line) {
  for (; line > 0; --line) {
    const std::size_t end = cell.find('\n');
    if (end == std::string_view::npos) return "";
    cell.remove_prefix(end + 1);
  }
  return cell.substr(0, cell.find('\n'));
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

std::size_t WidthOf(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; };
  std::size_t width = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    width = std::max(width, Index(std::count_if(line.begin(), line.end(), begins)));
    at = end + 1;
  }
  return width;
}

namespace {

// Aligns cells, which may have several lines.
class AlignedTable {
 public:
  AlignedTable(const Table& table, TableStyle style)
      : table_(table),
        style_(style),
        figures_(FigureColumns(table)),
        rows_(MarkedRows(table, figures_)) {
    for (const std::string& name : table.columns) widths_.push_back(WidthOf(name));
    for (const auto& row : rows_) {
      for (std::size_t column = 0; column < std::min(row.size(), widths_.size()); ++column) {
        widths_[column] = std::max(widths_[column], WidthOf(row[column]));
      }
    }
  }

  std::string Format() const {
    std::string text = table_.title.empty() ? "" : table_.title + '\n';
    const auto never = [](std::size_t /*column*/) { return false; };
    text += Lines(table_.columns, never);
    std::vector<std::string> rule;
    for (const std::size_t width : widths_) rule.emplace_back(width, '-');
    text += Lines(rule, never);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      text += Lines(rows_[row], [&](std::size_t column) {
        return style_ == TableStyle::kTerminal && table_.best.contains({row, column});
      });
    }
    return text;
  }

 private:
  template <class IsBold>
  std::string Lines(const std::vector<std::string>& cells, const IsBold& is_bold) const {
    std::ptrdiff_t last = 0;
    for (const std::string& cell : cells) last = std::max(last, std::ranges::count(cell, '\n'));
    std::string text;
    for (std::size_t i = 0; i <= static_cast<std::size_t>(last); ++i) {
      std::string line;
      for (std::size_t column = 0; column < std::min(cells.size(), widths_.size()); ++column) {
        if (column > 0) line += "  ";
        AppendCell(line, LineOf(cells[column], i),
                   {widths_[column], figures_[column], is_bold(column)});
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + '\n';
    }
    return text;
  }

  const Table& table_;
  TableStyle style_;
  std::vector<bool> figures_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

}  // namespace

std::string FormatTable(const Table& table, TableStyle style, std::size_t width) {
  std::string text;
  for (const Table& part : FitTable(table, width)) {
    if (!text.empty()) text += '\n';
    text += AlignedTable(part, style).Format();
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
  if (unit == "s") {
    constexpr double kLeast = 0.99995, kMost = 59.95;  // in between, tables have four digits, too
    const double size = std::abs(value);
    if (size >= kLeast && size < kMost) return FormatLike(value, unit)(value);
    return value == 0 ? "0 s" : FormatSeconds(value);
  }
  if (unit == "B") {
    constexpr double kMostBytes = 9e18;  // limit of std::int64_t
    if (std::abs(value) > kMostBytes) return FormatNumber(value / 0x1p40, 1) + " TiB";
    return FormatBytes(std::llround(value));
  }
  return unit.empty() ? FormatNumber(value) : FormatNumber(value) + " " + unit;
}

AmountFormat FormatLike(double largest, const std::string& unit) {
  using Scales = std::vector<std::pair<double, const char*>>;
  static const Scales kSeconds = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}};
  static const Scales kBytes = {
      {0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
  if (unit != "s" && unit != "B") {
    return [unit](double value) { return FormatAmount(value, unit); };
  }
  const Scales& scales = unit == "s" ? kSeconds : kBytes;
  constexpr double kRounds = 0.99995;  // to 1.000
  const double size = std::abs(largest);
  const auto fits = [size](const auto& scale) { return size >= kRounds * scale.first; };
  const auto found = std::ranges::find_if(scales, fits);
  const auto [scale, name] = found == scales.end() ? scales.back() : *found;
  const double shown = size / scale;
  const bool is_whole = unit == "B" && scale == 1;  // bytes
  const int digits = is_whole ? 0 : shown < 9.9995 ? 3 : shown < 99.995 ? 2 : 1;
  return [scale = scale, name = name, digits](double value) -> std::string {
    if (!std::isfinite(value)) return "-";
    if (value == 0) return fmt::format("0 {}", name);
    return fmt::format("{:.{}f} {}", value / scale, digits, name);
  };
}

Table RankTable(const SimulationResult& result, const std::string& time_unit,
                const std::string& memory_unit) {
  const AmountFormat time = FormatLike(result.makespan, time_unit);
  const AmountFormat memory = FormatLike(result.peak_memory, memory_unit);
  Table table;
  table.columns = {"rank", "busy", "first start", "last end", "idle", "peak activations"};
  for (std::size_t r = 0; r < result.ranks.size(); ++r) {
    const RankResult& rank = result.ranks[r];
    table.rows.push_back({fmt::format("{}", r), time(rank.busy), time(rank.first_start),
                          time(rank.last_end), FormatPercent(IdleShare(rank, result.makespan)),
                          memory(rank.peak_memory)});
  }
  return table;
}

Table PredictedMeasuredTable(const SimulationResult& predicted, const SimulationResult& measured,
                             const std::string& time_unit, const std::string& memory_unit) {
  const AmountFormat time = FormatLike(std::max(predicted.makespan, measured.makespan), time_unit);
  const AmountFormat memory =
      FormatLike(std::max(predicted.peak_memory, measured.peak_memory), memory_unit);
  Table table;
  table.title = "Predicted and measured";
  table.columns = {"rank",     "busy: predicted",   "measured", "ratio", "bubble: predicted",
                   "measured", "memory: predicted", "measured", "ratio"};
  const auto add = [&](const std::string& name, const RankResult& p, const RankResult& m) {
    table.rows.push_back({name, time(p.busy), time(m.busy), Ratio(m.busy, p.busy),
                          FormatPercent(IdleShare(p, predicted.makespan)),
                          FormatPercent(IdleShare(m, measured.makespan)), memory(p.peak_memory),
                          memory(m.peak_memory), Ratio(m.peak_memory, p.peak_memory)});
  };
  const std::size_t ranks = std::min(predicted.ranks.size(), measured.ranks.size());
  for (std::size_t r = 0; r < ranks; ++r) {
    add(fmt::format("{}", r), predicted.ranks[r], measured.ranks[r]);
  }
  table.rows.push_back({"step", time(predicted.makespan), time(measured.makespan),
                        Ratio(measured.makespan, predicted.makespan),
                        FormatPercent(predicted.bubble), FormatPercent(measured.bubble),
                        memory(predicted.peak_memory), memory(measured.peak_memory),
                        Ratio(measured.peak_memory, predicted.peak_memory)});
  return table;
}

}  // namespace penstock
