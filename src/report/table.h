// Tables: the same rows as text for a terminal, as CSV and as HTML.
#pragma once

#include <string>
#include <vector>

#include "simulate/simulate.h"

namespace penstock {

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`
};

// Whether each column holds figures only (and blanks): those are set flush right.
std::vector<bool> FigureColumns(const Table& table);

// Lines of aligned columns under the title and a rule, ended by '\n'.
std::string FormatTable(const Table& table);
// Comma-separated, the columns' names first.
std::string FormatTableCsv(const Table& table);

// A figure in at most `digits` digits behind the point, without trailing zeros: 117, 11.5, 0.1795.
std::string FormatNumber(double value, int digits = 4);
// 0.1795 as "17.9%".
std::string FormatPercent(double fraction);
// An amount of time or memory in the report's unit: "s" and "B" as base/units.h writes them, any
// other unit as a plain number.
std::string FormatAmount(double value, const std::string& unit);

// One row a rank: busy, first start, last end, idle share and peak memory.
Table RankTable(const SimulationResult& result, const std::string& time_unit,
                const std::string& memory_unit);
// One row a rank: predicted beside measured, and their ratio, for busy time, bubble and peak
// memory.
Table PredictedMeasuredTable(const SimulationResult& predicted, const SimulationResult& measured,
                             const std::string& time_unit, const std::string& memory_unit);

}  // namespace penstock
