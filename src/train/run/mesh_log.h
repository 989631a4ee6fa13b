// The line per rank that a run on several hosts or replicas logs at its start.
#pragma once

#include <cstdio>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/data_parallel.h"

namespace penstock {

// Logs the coordinates and the host of each rank. Called on all hosts; the leader's `log` is used.
// Logs nothing for one pipeline on one host. Errors: the reason of an abort of the group.
Status LogMesh(Collectives& hosts, const HostedRanks& ranks, const Mesh& mesh, std::FILE* log);

}  // namespace penstock
