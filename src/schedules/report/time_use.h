// Where the time of a rank goes, as tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "explain/difference.h"
#include "report/table.h"

namespace penstock {

using TimeFormat = std::function<std::string(double)>;

// The name, the values and, if there are two, how much larger the second one is.
std::vector<std::string> ComparedRow(const std::string& name, const std::vector<double>& values,
                                     const TimeFormat& format);

// One row per op and per cause of idle time that takes time in some run, one column per run.
// Requires: as many labels as uses.
Table TimeUseTable(const std::vector<std::string>& labels, const std::vector<TimeUse>& uses,
                   const TimeFormat& format);

}  // namespace penstock
