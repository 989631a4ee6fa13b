#include "schedule/data_parallel.h"

#include <utility>
#include <vector>

namespace penstock {
namespace {

Part Shifted(Part part, int stages) {
  if (part.op != Op::kNone) part.stage = static_cast<std::uint16_t>(part.stage + stages);
  return part;
}

}  // namespace

Result<Schedule> AddDataParallelism(const Schedule& schedule, int data) {
  if (data < 1) return InvalidArgument("{} data-parallel replicas: at least 1 is needed", data);
  if (data == 1) return schedule;
  if (schedule.weights != WeightPolicy::kFlush) {
    return InvalidArgument(
        "schedule '{}' does not flush, so its replicas would update their weights at different "
        "times: use a schedule that flushes, or one replica",
        schedule.algorithm);
  }
  if (schedule.vocabulary) {
    return InvalidArgument(
        "schedule '{}' shards the vocabulary over its ranks, which works only without replicas: "
        "use one replica, or no vocabulary parallelism",
        schedule.algorithm);
  }
  const int stages = schedule.stages();
  if (stages > kMaxStages / data) {
    return InvalidArgument("{} replicas of {} stages are more than {} stages", data, stages,
                           kMaxStages);
  }
  Schedule replicated = schedule;
  replicated.microbatches *= data;
  std::vector<int> rank_of_stage;
  for (int replica = 0; replica < data; ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      rank_of_stage.push_back(replica * schedule.ranks() + schedule.placement.rank_of(stage));
    }
    if (replica == 0) continue;
    for (Lane lane : schedule.lanes) {
      for (Action& action : lane) {
        action.first = Shifted(action.first, replica * stages);
        action.second = Shifted(action.second, replica * stages);
      }
      replicated.lanes.push_back(std::move(lane));
    }
  }
  PENSTOCK_TRY(replicated.placement,
               Placement::FromRanks(std::move(rank_of_stage), schedule.ranks() * data,
                                    schedule.placement.replicas() * data));
  return replicated;
}

}  // namespace penstock
