#include "report/table_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/text/wrap.h"

namespace penstock {
namespace {

constexpr std::size_t kBetween = 2;     // blanks between columns
constexpr std::size_t kLeastText = 24;  // narrower columns of text are hard to read

class Fitted {
 public:
  Fitted(const Table& table, std::size_t width)
      : table_(table), width_(width), figures_(FigureColumns(table)) {}

  std::vector<Table> Run() {
    if (Total() > width_) WrapNames();
    for (std::size_t i = 0; i < table_.columns.size() && Total() > width_; ++i) WrapWidestText();
    if (Total() <= width_) return {std::move(table_)};
    if (!IsFirstColumnUnique()) NumberRows();
    return Parts();
  }

 private:
  // Without its name. A mark after the best value takes a column.
  std::size_t CellsWidth(std::size_t column) const {
    std::size_t width = 0;
    for (const auto& row : table_.rows) {
      if (column < row.size()) width = std::max(width, WidthOf(row[column]));
    }
    const bool has_mark = std::ranges::any_of(
        table_.best, [column](const auto& best) { return best.second == column; });
    return width + (has_mark ? 1 : 0);
  }
  std::size_t WidthOfColumn(std::size_t column) const {
    return std::max(WidthOf(table_.columns[column]), CellsWidth(column));
  }
  std::size_t Total() const {
    std::size_t total = 0;
    for (std::size_t i = 0; i < table_.columns.size(); ++i) {
      total += WidthOfColumn(i) + (i > 0 ? kBetween : 0);
    }
    return total;
  }

  // Indented cells belong to the row above.
  bool IsFirstColumnUnique() const {
    std::set<std::string_view> seen;
    return std::ranges::all_of(table_.rows, [&](const auto& row) {
      return row.front().starts_with(' ') || seen.insert(row.front()).second;
    });
  }

  // Parts of a table are read together by their first column.
  void NumberRows() {
    const auto lines = std::ranges::count(table_.columns.front(), '\n');
    table_.columns.insert(table_.columns.begin(),
                          std::string(static_cast<std::size_t>(lines), '\n') + "row");
    for (std::size_t i = 0; i < table_.rows.size(); ++i) {
      table_.rows[i].insert(table_.rows[i].begin(), fmt::format("{}", i + 1));
    }
    figures_.insert(figures_.begin(), true);
    decltype(table_.best) best;
    for (const auto& [row, column] : table_.best) best.insert({row, column + 1});
    table_.best = std::move(best);
  }

  void WrapNames() {
    std::ptrdiff_t most = 0;
    for (std::size_t i = 0; i < table_.columns.size(); ++i) {
      std::string& name = table_.columns[i];
      name = Wrap(name, CellsWidth(i));
      most = std::max(most, std::ranges::count(name, '\n'));
    }
    for (std::string& name : table_.columns) {  // the rule is below the last line of all names
      name.insert(0, static_cast<std::size_t>(most - std::ranges::count(name, '\n')), '\n');
    }
  }

  void WrapWidestText() {
    std::size_t widest = table_.columns.size();
    for (std::size_t i = 0; i < table_.columns.size(); ++i) {
      if (figures_[i] || WidthOfColumn(i) <= kLeastText) continue;
      if (widest == table_.columns.size() || WidthOfColumn(i) > WidthOfColumn(widest)) widest = i;
    }
    if (widest == table_.columns.size()) return;
    const std::size_t others = Total() - WidthOfColumn(widest);
    const std::size_t room = others < width_ ? width_ - others : 0;
    for (auto& row : table_.rows) row[widest] = Wrap(row[widest], std::max(room, kLeastText));
  }

  // Columns in their order, as many as fit next to the first one.
  std::vector<Table> Parts() const {
    std::vector<std::vector<std::size_t>> parts;
    std::size_t used = 0;
    for (std::size_t i = 1; i < table_.columns.size(); ++i) {
      const std::size_t own = WidthOfColumn(i) + kBetween;
      if (parts.empty() || used + own > width_) {
        parts.push_back({0});
        used = WidthOfColumn(0);
      }
      parts.back().push_back(i);
      used += own;
    }
    if (parts.empty()) return {table_};
    std::vector<Table> tables;
    for (const std::vector<std::size_t>& columns : parts) tables.push_back(PartOf(columns));
    for (std::size_t i = 1; i < tables.size(); ++i) tables[i].title.clear();
    return tables;
  }

  Table PartOf(const std::vector<std::size_t>& columns) const {
    Table part;
    part.title = table_.title;
    std::size_t blank = std::string::npos;  // lines that all names begin with
    for (const std::size_t column : columns) {
      const std::string& name = table_.columns[column];
      blank = std::min(blank, name.find_first_not_of('\n'));
      part.columns.push_back(name);
    }
    for (std::string& name : part.columns) name.erase(0, std::min(blank, name.size()));
    for (const auto& row : table_.rows) {
      std::vector<std::string>& cells = part.rows.emplace_back();
      for (const std::size_t column : columns) cells.push_back(row[column]);
    }
    for (const auto& [row, column] : table_.best) {
      const auto at = std::ranges::find(columns, column);
      if (at != columns.end())
        part.best.insert({row, static_cast<std::size_t>(at - columns.begin())});
    }
    return part;
  }

  Table table_;
  std::size_t width_;
  std::vector<bool> figures_;
};

}  // namespace

std::vector<Table> FitTable(const Table& table, std::size_t width) {
  if (width == 0) return {table};
  return Fitted(table, width).Run();
}

}  // namespace penstock
