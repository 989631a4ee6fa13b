#include "train/c10d/c10d_process_group.h"

#include "tests/engine/c10d/board.h"
#include "tests/engine/runtime/collectives/rank_group_conformance.h"
#include "tests/engine/runtime/transports/transport_conformance.h"

namespace penstock {

std::vector<TransportCase> TestedTransports() {
  return {{"processes", 2, [](int processes) { return MakeC10dLoopback(processes); }, "c10d"}};
}

std::vector<RankGroupCase> TestedRankGroups() {
  return {{"C10d", 2, [](int processes) { return MakeC10dLoopback(processes); }}};
}

}  // namespace penstock
