// The memory of simulated schedules by kind: penstock simulate --memory.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "report/table.h"
#include "scenario/price/simulated.h"

namespace penstock {

// One row per rank: its peak, when it is reached, the last action that allocated before it, the
// microbatches in flight on each of its stages, and the kinds that some rank holds. Requires:
// AddMemory.
Table MemoryTable(const Simulated& simulated);
// Returns the table of several schedules, with figures unrounded and all kinds.
Table MemoryCsvTable(const std::vector<Simulated>& all);
// One line about what the tables leave out; empty if nothing.
std::string MemoryText(const std::vector<Simulated>& all);

// Peaks and timelines by rank.
nlohmann::ordered_json MemoryJson(const Simulated& simulated);

}  // namespace penstock
