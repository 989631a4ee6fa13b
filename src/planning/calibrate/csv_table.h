// Tables of comma-separated values as spreadsheets write them: a header line, quoted cells that may
// contain commas and quotes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct CsvTable {
  struct Row {
    int line = 0;  // in the file
    std::vector<std::string> cells;
  };

  std::vector<std::string> columns;  // of the header, all different
  std::vector<Row> rows;             // each with as many cells as there are columns

  // Returns the index of a column, or columns.size().
  std::size_t Find(std::string_view column) const;
  bool Has(std::string_view column) const { return Find(column) < columns.size(); }
};

// Blanks around cells and blank lines do not count. Errors: kInvalidArgument with the line for rows
// of another size, columns without a name or given twice, quotes that do not end in their line, and
// text that is not UTF-8 or has control characters; also for a table without rows.
Result<CsvTable> ParseCsvTable(std::string_view text);
// Reads a file of at most 64 MiB. Errors begin with the path.
Result<CsvTable> ReadCsvTable(const std::string& path);

// One row with its columns by name.
class CsvRow {
 public:
  CsvRow(const CsvTable& table, std::size_t row) : table_(table), row_(table.rows[row]) {}

  int line() const { return row_.line; }
  bool Has(std::string_view column) const { return !Text(column).empty(); }
  // Returns an empty text for a column that the table lacks.
  std::string_view Text(std::string_view column) const;
  // Errors: kInvalidArgument about the column if the cell is no such number, or empty.
  Result<double> Number(std::string_view column) const;
  Result<int> Count(std::string_view column) const;  // at least 1
  Result<double> Positive(std::string_view column) const;

 private:
  const CsvTable& table_;
  const CsvTable::Row& row_;
};

// Returns an error about a column of a row, which begins with the cell's text.
tl::unexpected<Error> RefuseCell(const CsvRow& row, std::string_view column, std::string_view why);

}  // namespace penstock
