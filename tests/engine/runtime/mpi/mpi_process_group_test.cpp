#include "runtime/mpi/mpi_process_group.h"

#include "tests/engine/runtime/collectives/rank_group_conformance.h"
#include "tests/engine/runtime/transports/transport_conformance.h"

namespace penstock {

std::vector<TransportCase> TestedTransports() {
  return {{"processes", 2, MakeMpiLoopback}, {"bytes", 2, MakeMpiLoopback}};
}

std::vector<RankGroupCase> TestedRankGroups() {
  return {{"two_processes", 2, MakeMpiLoopback}, {"a_process_per_rank", 5, MakeMpiLoopback}};
}

}  // namespace penstock
