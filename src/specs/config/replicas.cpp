#include "config/replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "config/sequence_lengths.h"
#include "model_spec/model_spec.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/passes.h"

namespace penstock {

Mesh MeshOf(const ParallelConfig& parallel, const Schedule& schedule) {
  return Mesh::Make({.data = parallel.data,
                     .expert = parallel.expert,
                     .pipeline = schedule.ranks() / parallel.data})
      .value();
}

Mesh Planes(const ParallelConfig& parallel) {
  return Mesh::Make({.context = parallel.context, .tensor = parallel.tensor}).value();
}

Mesh MeshOfPlanes(const ParallelConfig& parallel, const Schedule& schedule) {
  return Mesh::Make({.data = parallel.data,
                     .expert = parallel.expert,
                     .pipeline = schedule.ranks() / parallel.data,
                     .context = parallel.context,
                     .tensor = parallel.tensor})
      .value();
}

bool DividesTokens(const TrainConfig& config) {
  const int ranks = config.parallel.tensor;
  if (ranks == 1 || !config.parallel.sequence_parallel || HasPredictor(config)) return false;
  std::vector<std::int64_t> divided = SliceLengths(config);
  const std::vector<std::int64_t> of_microbatches = MicrobatchLengths(config);
  divided.insert(divided.end(), of_microbatches.begin(), of_microbatches.end());
  for (std::int64_t& tokens : divided) tokens = TokensOfRank(config, tokens);
  divided.push_back(config.model.vocabulary);
  return std::ranges::all_of(divided, [ranks](std::int64_t size) { return size % ranks == 0; });
}

std::string ReasonForAllTokens(const TrainConfig& config) {
  if (!config.parallel.sequence_parallel) return "parallel.sequence_parallel is false";
  if (HasPredictor(config)) return "model.predictor reads whole samples";
  return fmt::format("they do not divide the tokens of samples, or the {} of the vocabulary",
                     config.model.vocabulary);
}

namespace {

// Whether each tensor rank has whole experts, although ranks divide the other matrices.
bool HasWholeExperts(const ParallelConfig& parallel) {
  return parallel.tensor > 1 && parallel.expert_tensor == 1;
}

}  // namespace

Status CheckExpertTensor(const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const int ranks = parallel.expert_tensor;
  const ModelSpec* const model = FindModelSpec(config.model.name);
  if (ranks > 0 && (model == nullptr || !model->experts)) {
    return InvalidParameter("parallel.expert_tensor", "{}: model {} has no experts; leave it out",
                            ranks, config.model.name);
  }
  if (ranks > 1 && ranks != parallel.tensor) {
    return InvalidParameter("parallel.expert_tensor", "{}: it must be 1 or parallel.tensor, {}",
                            ranks, parallel.tensor);
  }
  if (!HasWholeExperts(parallel) || DividesTokens(config)) return {};
  return InvalidParameter(
      "parallel.expert_tensor",
      "1: each of the {} ranks (parallel.tensor) sends its share of the tokens to whole experts, "
      "but all ranks have all tokens, because {}",
      parallel.tensor, ReasonForAllTokens(config));
}

LayerRange WithPlane(LayerRange range, const TrainConfig& config, int plane) {
  const Mesh planes = Planes(config.parallel);
  range.tensor_ranks = planes.size(Axis::kTensor);
  range.tensor_rank = planes.PlaceOf(plane, Axis::kTensor);
  range.context_ranks = planes.size(Axis::kContext);
  range.context_rank = planes.PlaceOf(plane, Axis::kContext);
  const auto exchange = std::ranges::find(kContextExchangeNames, config.parallel.context_exchange);
  range.context_exchange = static_cast<ContextExchange>(exchange - kContextExchangeNames.begin());
  range.divides_tokens = DividesTokens(config);
  range.has_whole_experts = HasWholeExperts(config.parallel);
  return range;
}

LayerRange WithParts(const LayerRange& range, const TrainConfig& config, const Schedule& schedule,
                     int rank, int plane) {
  const Mesh mesh = MeshOf(config.parallel, schedule);
  LayerRange part = WithPlane(range, config, plane);
  part.expert_ranks = mesh.size(Axis::kExpert);
  part.expert_rank = mesh.PlaceOf(rank, Axis::kExpert);
  return part;
}

// Replicas with different experts have different gradient norms, which only ranks with shards add.
int ZeroOf(const ParallelConfig& parallel, const Schedule& schedule) {
  if (schedule.placement.replicas() == 1) return 0;
  if (parallel.expert > 1) return std::max(parallel.zero, 1);
  return parallel.data == 1 ? std::min(parallel.zero, 1) : parallel.zero;
}

bool HasReplicaGroups(const ParallelConfig& parallel, const Schedule& schedule) {
  const int zero = ZeroOf(parallel, schedule);
  return zero >= 2 || (zero == 1 && schedule.placement.replicas() == parallel.data);
}

Result<Schedule> ShardSchedule(const Schedule& schedule, const ParallelConfig& parallel) {
  const int zero = ZeroOf(parallel, schedule);
  constexpr unsigned kGathers = OpBit(Op::kUnshard) | OpBit(Op::kReshard);
  for (const auto& [ops, names, least] : {std::tuple(kGathers, "UNSHARD and RESHARD", 3),
                                          std::tuple(OpBit(Op::kReduceGrad), "REDUCE_GRAD", 2)}) {
    if (zero >= least || !HasOps(schedule, ops)) continue;
    return InvalidParameter(
        "pipeline.csv",
        ": {} are for shards: set parallel.zero={} and parallel.data to at least 2, or "
        "remove them from the file",
        names, least);
  }
  if (zero < 2) return schedule;
  if (zero == 2) return AddReduceGrad(schedule);
  PENSTOCK_TRY(const Schedule sharded, AddSharding(schedule, {.lookahead = parallel.lookahead,
                                                              .residency = parallel.residency}));
  return AddReduceGrad(sharded);  // a file may have UNSHARD alone
}

// Norms are added shard by shard for all values of `zero`, so that they are bitwise the same if the
// shards are.
int ShardsOfStage(const ParallelConfig& parallel, const Schedule& schedule) {
  if (ZeroOf(parallel, schedule) >= 2) return parallel.data;
  return parallel.data > 1 || parallel.zero > 0 ? schedule.placement.replicas() : 1;
}

int ReplicasPerShard(const ParallelConfig& parallel, const Schedule& schedule) {
  const int replicas = schedule.placement.replicas();
  const int zero = ZeroOf(parallel, schedule);
  if (zero == 0) return replicas;
  return zero == 1 ? 1 : replicas / parallel.data;
}

}  // namespace penstock
