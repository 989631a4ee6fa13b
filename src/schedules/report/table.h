// Tables, formatted as text, as CSV or (html.cpp) as HTML.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulate/simulate.h"

namespace penstock {

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;               // each of the size of `columns`
  std::set<std::pair<std::size_t, std::size_t>> best = {};  // row and column of values to mark
  std::vector<std::string> links = {};  // on a page, what each row's first cell leads to; or none
};

// Whether each column has only figures and blanks; such columns are right-aligned.
std::vector<bool> FigureColumns(const Table& table);

// Plain text has a '*' after the best values; a terminal also shows them bold.
enum class TableStyle { kPlain, kTerminal };

// The title, the column names, a rule and the rows as aligned lines. Ends with '\n'. With a width,
// the table fits into as many columns of a terminal (table_fit.h).
std::string FormatTable(const Table& table, TableStyle style = TableStyle::kPlain,
                        std::size_t width = 0);
// How wide a text is in a terminal: its widest line, in code points.
std::size_t WidthOf(std::string_view text);
// Comma-separated values with a header line.
std::string FormatTableCsv(const Table& table);

// At most `digits` digits after the decimal point, without trailing zeros: 117, 11.5, 0.1795. What
// these would round to 0, and what has more than fifteen digits, is in scientific notation.
std::string FormatNumber(double value, int digits = 4);
// 0.1795 as "17.9%".
std::string FormatPercent(double fraction);
// "3 ms" becomes "+3 ms"; zero and negative figures stay unchanged.
std::string WithSign(const std::string& figure);
// An amount of time or memory in the report's unit: "s" and "B" as base/units.h formats them, any
// other unit as a plain number.
std::string FormatAmount(double value, const std::string& unit);

// Formats the amounts of one table or axis.
using AmountFormat = std::function<std::string(double)>;
// Returns a format that writes all amounts in the unit of the largest one, which gets four digits:
// a table that mixes units cannot be compared at a glance.
AmountFormat FormatLike(double largest, const std::string& unit);

// One row per rank: busy time, first start, last end, idle share and peak of the activations.
Table RankTable(const SimulationResult& result, const std::string& time_unit,
                const std::string& memory_unit);
// One row per rank: predicted and measured busy time, bubble and peak memory, and their ratios.
Table PredictedMeasuredTable(const SimulationResult& predicted, const SimulationResult& measured,
                             const std::string& time_unit, const std::string& memory_unit);

}  // namespace penstock
