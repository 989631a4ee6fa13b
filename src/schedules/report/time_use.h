// Where the time of a rank goes, as tables.
#pragma once

#include <string>
#include <vector>

#include "explain/difference.h"
#include "report/table.h"

namespace penstock {

// The name, the values and, if there are two, how much larger the second one is.
std::vector<std::string> ComparedRow(const std::string& name, const std::vector<double>& values,
                                     const AmountFormat& format);

// One row per op and per cause of idle time that takes time in some run, one column per run.
// Requires: as many labels as uses.
Table TimeUseTable(const std::vector<std::string>& labels, const std::vector<TimeUse>& uses,
                   const AmountFormat& format);

}  // namespace penstock
