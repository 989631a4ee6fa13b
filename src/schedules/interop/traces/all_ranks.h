// Whether the given traces cover all ranks of a pipeline. Private to interop/traces.
#pragma once

#include "interop/traces/rank_actions.h"
#include "interop/traces/trace_file.h"

namespace penstock {

// Refuses the traces of some ranks only, as far as the files tell: one rank of several would
// otherwise be read as a pipeline of one rank.
Status RequireAllRanks(const std::vector<TraceFile>& files, const std::vector<RankActions>& ranks);

}  // namespace penstock
