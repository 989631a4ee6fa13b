// Tables in a terminal that is narrower than they are.
#pragma once

#include <cstddef>
#include <vector>

#include "report/table.h"

namespace penstock {

// Returns tables that are at most `width` wide, where words allow it; 0 is any width. In this
// order: column names are wrapped, texts are wrapped, widest column first, and columns move to
// further tables below, each with the first column. So no figure is lost.
std::vector<Table> FitTable(const Table& table, std::size_t width);

}  // namespace penstock
