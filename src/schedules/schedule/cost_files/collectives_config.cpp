#include "schedule/cost_files/collectives_config.h"

#include "schedule/cost_files/topology_config.h"

namespace penstock {
namespace {

constexpr int kMostReplicas = 1 << 20;

}  // namespace

Result<CollectivesConfig> ReadCollectives(const YamlMap& config) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(config.Node("collectives"), "collectives"));
  PENSTOCK_TRY_STATUS(map.RequireKnown({"algorithm", "replicas", "levels"}));
  CollectivesConfig read;
  PENSTOCK_TRY(const auto name, map.Text("algorithm"));
  if (name) {
    const auto algorithm = ParseCollectiveAlgorithm(*name);
    if (!algorithm) return map.Refuse("algorithm", "{}", algorithm.error().line());
    read.algorithm = *algorithm;
  }
  PENSTOCK_TRY(const auto replicas, map.Int("replicas"));
  if (!replicas || *replicas < 1 || *replicas > kMostReplicas) {
    return map.Refuse("replicas", "the number of replicas of a stage is needed, 1 to {}",
                      kMostReplicas);
  }
  read.group.members = *replicas;
  PENSTOCK_TRY(read.group.links,
               ReadLevels(map, "levels", {"level", "ranks", "latency", "bandwidth"}));
  const Status status = CheckGroup(read.group);
  if (status) return read;
  std::string message = status.error().message;
  message.erase(0, message.find_first_not_of(": "));
  return map.Refuse(status.error().parameter, "{}", message);
}

Status PriceCollectives(const CollectivesConfig& collectives, double bytes,
                        std::optional<double> reduced, Costs& costs) {
  const double members = collectives.group.members;
  if (members == 1) return {};
  // Converts the part that the other members have to the whole vector.
  const double whole = bytes * members / (members - 1);
  costs.ForEachStage([&](StageCosts& stage) {
    stage.unshard = AllGatherTime(collectives.algorithm, collectives.group, stage.gathered * whole);
    stage.reduce = ReduceScatterTime(collectives.algorithm, collectives.group,
                                     reduced.value_or(stage.gathered) * whole);
  });
  for (const StageCosts& stage : costs.stages) {
    for (const double time : {stage.unshard, stage.reduce}) {
      const Status status = CheckTime(time);
      if (!status) return InvalidArgument("the time of a collective {}", status.error().line());
    }
  }
  return {};
}

}  // namespace penstock
