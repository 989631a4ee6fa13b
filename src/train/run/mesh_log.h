// The line per rank that a run on several processes or replicas logs at its start.
#pragma once

#include <cstdio>

#include "base/result.h"
#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/data_parallel.h"

namespace penstock {

// Logs the coordinates and the process of each rank. Called on all processes; the leader's `log` is
// used. Logs nothing for one pipeline on one process. Errors: the reason of an abort of the group.
Status LogMesh(Collectives& processes, const LocalRanks& ranks, const Mesh& mesh, std::FILE* log);

}  // namespace penstock
