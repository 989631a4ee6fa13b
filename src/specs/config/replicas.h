// The replicas of a run's stages: what they shard, and which experts each has.
#pragma once

#include <string>

#include "base/result.h"
#include "config/train_config.h"
#include "model_spec/layer_range.h"
#include "schedule/mesh.h"
#include "schedule/schedule.h"

namespace penstock {

// Returns UpdateRule::zero of a run: the configured ZeRO stage, or 0 with one replica.
// The two replicas in one pipeline of a bidirectional schedule share only ZeRO-1.
int ZeroOf(const ParallelConfig& parallel, const Schedule& schedule);
// Returns whether the replicas with the shards of a stage form a group for collectives. Not with
// ZeRO-1 if a pipeline has several replicas: these have different shards, and may be on one rank.
bool HasReplicaGroups(const ParallelConfig& parallel, const Schedule& schedule);
// Adds the collectives of ZeRO-2 and 3 to a schedule with replicas.
Result<Schedule> ShardSchedule(const Schedule& schedule, const ParallelConfig& parallel);
// Returns the number of ranges of a stage's parameters: shards, or ranges whose norms are added
// separately.
int ShardsOfStage(const ParallelConfig& parallel, const Schedule& schedule);
// Returns the mesh of the ranks of a schedule with all replicas.
Mesh MeshOf(const ParallelConfig& parallel, const Schedule& schedule);
// Returns the planes of a run: a mesh of one rank per plane, along the context and tensor axes. All
// ranks of a plane have the same places along these axes, and run the whole schedule.
Mesh Planes(const ParallelConfig& parallel);
// Returns the mesh of all ranks of a run. Rank r of the schedule in plane p is rank
// r * Planes().ranks() + p.
Mesh MeshOfPlanes(const ParallelConfig& parallel, const Schedule& schedule);
// Returns whether tensor ranks divide the tokens between layers: if they are to, and divide evenly
// the rank's tokens of all samples and slices, and the vocabulary; not with model.predictor, whose
// samples are one token shorter.
bool DividesTokens(const TrainConfig& config);
// Returns why they do not, as the end of a sentence. Requires: !DividesTokens(config).
std::string ReasonForAllTokens(const TrainConfig& config);
// Checks parallel.expert_tensor. Requires: ChooseSchedule has filled in the rest. Errors:
// kInvalidArgument.
Status CheckExpertTensor(const TrainConfig& config);
// Returns the layers of a stage with the parts of the matrices (parallel.tensor) and of the tokens
// (parallel.context) that its plane has.
LayerRange WithPlane(LayerRange range, const TrainConfig& config, int plane = 0);
// WithPlane, with the part of the experts that the rank of the schedule has (parallel.expert).
LayerRange WithParts(const LayerRange& range, const TrainConfig& config, const Schedule& schedule,
                     int rank, int plane);
// Returns how many consecutive replicas of a stage have the same shard.
int ReplicasPerShard(const ParallelConfig& parallel, const Schedule& schedule);

}  // namespace penstock
