// Writes dumps; load.cpp reads them.
#include "interop/primus/dump.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/folders.h"
#include "interop/primus/dump_costs.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

// The lists of one kind of action on one rank.
struct Events {
  OrderedJson start = OrderedJson::array(), end = OrderedJson::array();
  OrderedJson microbatch = OrderedJson::array(), chunk = OrderedJson::array();
};

struct RankEvents {
  Events forward, backward, weight;
  OrderedJson memory = OrderedJson::array();  // held after each F, W and B
};

Events& EventsOf(Op op, RankEvents& rank) {
  return op == Op::kForward          ? rank.forward
         : op == Op::kBackwardWeight ? rank.weight
                                     : rank.backward;
}

RankEvents Collect(const PrimusRun& run, int rank) {
  const std::size_t r = rank;
  const std::vector<int>& stages = run.schedule.placement.stages_of(rank);
  RankEvents events;
  double held = 0;
  for (std::size_t i = 0; i < run.schedule.lanes[r].size(); ++i) {
    const Action& action = run.schedule.lanes[r][i];
    if (!IsCompute(action)) continue;
    ForEachPart(action, [&](const Part& part) {
      const auto chunk = std::lower_bound(stages.begin(), stages.end(), int{part.stage});
      Events& list = EventsOf(part.op, events);
      list.start.push_back(run.timeline.spans[r][i].start);
      list.end.push_back(run.timeline.spans[r][i].end);
      list.microbatch.push_back(part.microbatch);
      list.chunk.push_back(chunk - stages.begin());
      if (part.op == Op::kBackwardInput) return;
      const double activation = run.costs.Of(part).activation;
      held += part.op == Op::kForward ? activation : -activation;
      events.memory.push_back(held);
    });
  }
  return events;
}

OrderedJson ToJson(RankEvents&& events, const RankResult& result) {
  OrderedJson rank;
  rank["total"] = result.last_end;
  rank["memory"] = result.peak_memory;
  const std::pair<const char*, Events*> lists[] = {
      {"fwd", &events.forward}, {"bwd", &events.backward}, {"wgrad", &events.weight}};
  for (const auto& [name, list] : lists) {
    rank[fmt::format("{}_start", name)] = std::move(list->start);
    rank[fmt::format("{}_end", name)] = std::move(list->end);
  }
  for (const auto& [name, list] : lists) {
    rank[fmt::format("{}_minibatch", name)] = std::move(list->microbatch);
    rank[fmt::format("{}_chunk", name)] = std::move(list->chunk);
  }
  rank["activation_memory_usage"] = std::move(events.memory);
  return OrderedJson{{"0", std::move(rank)}};
}

}  // namespace

Status SavePrimusDump(const PrimusRun& run, const std::string& folder) {
  const Schedule& schedule = run.schedule;
  if (schedule.placement.replicas() != 1 || schedule.slices != 1 || schedule.steps != 1) {
    return InvalidArgument("{}: Primus's dumps cannot represent replicas, slices or several steps",
                           folder);
  }
  PENSTOCK_TRY_STATUS(CreateFolders(folder));
  const OrderedJson config = {{"pp_size", schedule.ranks()},
                              {"vpp_size", schedule.placement.chunks()},
                              {"micro_batches", schedule.microbatches}};
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const OrderedJson dump = ToJson(Collect(run, rank), run.result.ranks[rank]);
    const std::string path = (fs::path(folder) / fmt::format("pp_rank_{}.json", rank)).string();
    PENSTOCK_TRY_STATUS(WriteFileAtomically(path, dump.dump(2)));
  }
  const OrderedJson costs =
      CostsToJson({run.costs, run.memory_unit, LastEnds(schedule, run.timeline)});
  PENSTOCK_TRY_STATUS(
      WriteFileAtomically((fs::path(folder) / kDumpCostsFile).string(), costs.dump(2)));
  return WriteFileAtomically((fs::path(folder) / "config.json").string(), config.dump(2));
}

}  // namespace penstock
