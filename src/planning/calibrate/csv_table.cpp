#include "calibrate/csv_table.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/files.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

constexpr FileLimit kTableFile = {std::size_t{64} << 20, "table of runs"};
constexpr double kMostCount = 1e9;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Takes a quoted cell from the front of `rest`: what follows the closing quote stays.
Result<std::string> TakeQuoted(std::string_view& rest) {
  std::string cell;
  for (std::size_t i = 1; i < rest.size(); ++i) {
    if (rest[i] != '"') {
      cell += rest[i];
    } else if (i + 1 < rest.size() && rest[i + 1] == '"') {
      cell += rest[i++];
    } else {
      rest.remove_prefix(i + 1);
      return cell;
    }
  }
  return InvalidArgument("a quoted cell does not end in its line: {}", Quote(rest));
}

Result<std::vector<std::string>> SplitCells(std::string_view line) {
  std::vector<std::string> cells;
  std::string_view rest = line;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    std::string cell;
    if (rest.starts_with('"')) {
      PENSTOCK_TRY(cell, TakeQuoted(rest));
      const std::string_view after = Trimmed(rest.substr(0, rest.find(',')));
      if (!after.empty()) {
        return InvalidArgument("{} follows a quoted cell; write a comma after it", Quote(after));
      }
    }
    const std::size_t end = std::min(rest.find(','), rest.size());
    if (cell.empty()) cell = Trimmed(rest.substr(0, end));
    cells.push_back(std::move(cell));
    if (end == rest.size()) return cells;
    rest.remove_prefix(end + 1);
  }
}

Status CheckColumns(const std::vector<std::string>& columns) {
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].empty()) return InvalidArgument("column {} has no name", i + 1);
    if (!seen.insert(columns[i]).second) {
      return InvalidArgument("column {} is given twice", Quote(columns[i]));
    }
  }
  return {};
}

Status AddLine(int number, std::string_view line, CsvTable& table) {
  if (Printable(line).size() != line.size()) {
    // A tab is the one control character that spreadsheets write.
    std::string plain(line);
    std::ranges::replace(plain, '\t', ' ');
    if (Printable(plain) != plain) {
      return InvalidArgument("{} is not text: UTF-8 without control characters is needed",
                             Quote(line));
    }
  }
  PENSTOCK_TRY(std::vector<std::string> cells, SplitCells(line));
  if (table.columns.empty()) {
    table.columns = std::move(cells);
    return CheckColumns(table.columns);
  }
  if (cells.size() != table.columns.size()) {
    return InvalidArgument("the row has {} cells, the header {}", cells.size(),
                           table.columns.size());
  }
  table.rows.push_back({number, std::move(cells)});
  return {};
}

}  // namespace

std::size_t CsvTable::Find(std::string_view column) const {
  return static_cast<std::size_t>(std::ranges::find(columns, column) - columns.begin());
}

Result<CsvTable> ParseCsvTable(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  CsvTable table;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (Trimmed(line).empty()) continue;
    const Status added = AddLine(number, line, table);
    if (!added) return tl::unexpected(In(fmt::format("line {}", number), added.error()));
  }
  if (table.columns.empty()) return InvalidArgument("the table is empty");
  if (table.rows.empty()) return InvalidArgument("the table has a header and no rows");
  return table;
}

Result<CsvTable> ReadCsvTable(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadTextFile(path, kTableFile));
  auto table = ParseCsvTable(text);
  if (!table) return tl::unexpected(In(path, std::move(table).error()));
  return table;
}

std::string_view CsvRow::Text(std::string_view column) const {
  const std::size_t index = table_.Find(column);
  return index < row_.cells.size() ? std::string_view(row_.cells[index]) : std::string_view();
}

Result<double> CsvRow::Number(std::string_view column) const {
  if (!Has(column)) return InvalidParameter(column, ": a number is needed, the cell is empty");
  const auto number = ParseNumber(Text(column));
  if (number) return *number;
  return RefuseCell(*this, column, "a number is needed");
}

Result<int> CsvRow::Count(std::string_view column) const {
  PENSTOCK_TRY(const double number, Number(column));
  // Tables that programs write have 4.0 for 4.
  if (number >= 1 && number <= kMostCount && number == std::floor(number)) {
    return static_cast<int>(number);
  }
  return RefuseCell(*this, column, "a whole number of at least 1 is needed");
}

Result<double> CsvRow::Positive(std::string_view column) const {
  PENSTOCK_TRY(const double number, Number(column));
  if (number > 0) return number;
  return RefuseCell(*this, column, "more than 0 is needed");
}

tl::unexpected<Error> RefuseCell(const CsvRow& row, std::string_view column, std::string_view why) {
  return InvalidParameter(column, "{}: {}", Quote(row.Text(column)), why);
}

}  // namespace penstock
