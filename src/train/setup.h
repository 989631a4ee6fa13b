// Chooses the ranks, the chunks and the schedule if the configuration does not. No torch here.
#pragma once

#include "base/result.h"
#include "model/model_config.h"
#include "schedule/schedule.h"
#include "train/config.h"

namespace penstock {

// Returns the number of cores that this process may use.
int Cores();

// Returns the run's schedule, which is valid, and stores the choices in `config.pipeline`. Chooses
// as ranks the largest number from 2 to 4 that is at most `cores` and divides the stages, else 2;
// as chunks, stages divided by ranks; as schedule, 1f1b, or interleaved if there are several
// chunks. A CSV determines all of them. Errors: kInvalidArgument for an invalid schedule, with its
// first fault, and for one that training does not support.
//
// Without a flush, the schedule streams over as many steps of the run as have about a thousand
// microbatches. Then the pipeline drains once.
Result<Schedule> ChooseSchedule(TrainConfig& config, int cores);

// Returns the chosen schedule, which has no flush, for another number of steps. Requires:
// ChooseSchedule has filled in the configuration.
Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps);

// Returns the layers of each of `stages` stages of the configured model.
Result<std::vector<LayerRange>> StageRanges(const TrainConfig& config, int stages);

// Records in the schedule which stages share parameters of the configured model. ChooseSchedule
// calls it. Errors: kInvalidArgument if stages that share a parameter step at different times.
Status SetShared(const TrainConfig& config, Schedule& schedule);

// Returns the tokens of each slice of a sequence: as configured, else equal. Requires:
// ChooseSchedule has filled in the configuration.
std::vector<std::int64_t> SliceLengths(const TrainConfig& config);

// Returns the tokens per sample of each microbatch of a step if they differ (data.lengths), else
// nothing. Requires: ChooseSchedule has filled in the configuration.
std::vector<std::int64_t> MicrobatchLengths(const TrainConfig& config);
// Returns the tokens of a step's batch, with padding. Requires: likewise.
std::int64_t TokensPerStep(const TrainConfig& config);

// Returns UpdateRule::zero of a run: what is configured, as far as there is anything to shard over.
// The two replicas in one pipeline of a bidirectional schedule share only ZeRO-1.
int ZeroOf(const ParallelConfig& parallel, const Schedule& schedule);
// Returns whether the replicas with the shards of a stage form a group for collectives. Not with
// ZeRO-1 if a pipeline has several replicas: these have different shards, and may be on one rank.
bool HasReplicaGroups(const ParallelConfig& parallel, const Schedule& schedule);
// Adds the collectives of ZeRO-2 and 3 to a schedule with replicas.
Result<Schedule> ShardSchedule(const Schedule& schedule, const ParallelConfig& parallel);
// Returns the number of ranges of a stage's parameters: those that are shards, or whose norms are
// added separately.
int ShardsOfStage(const ParallelConfig& parallel, const Schedule& schedule);
// Returns which part of the experts the replica in a chain has (parallel.expert).
int ExpertPartOf(const ParallelConfig& parallel, const Schedule& schedule, int chain);
// Returns the range with the part of the experts of a chain.
LayerRange WithExpertPart(LayerRange range, const ParallelConfig& parallel,
                          const Schedule& schedule, int chain);
// Returns how many consecutive replicas of a stage have the same shard.
int ReplicasPerShard(const ParallelConfig& parallel, const Schedule& schedule);

// Returns whether the pipeline must drain for a checkpoint of such a run. True without a flush, and
// if a step may be rolled back in the next one.
bool DrainsForCheckpoints(const TrainConfig& config, const Schedule& schedule);

}  // namespace penstock
