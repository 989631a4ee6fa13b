// Creates the shards of a run's vocabulary. Private to train/.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "schedule/schedule.h"
#include "train/stage/torch_vocabulary.h"

namespace penstock {

// By rank; null for ranks of other processes, and empty unless the schedule shards the vocabulary.
using VocabularyShards = std::vector<std::shared_ptr<TorchVocabulary>>;

// Creates the shards with their initial values. As BuildPipeline otherwise.
Result<VocabularyShards> MakeVocabularyShards(const TrainConfig& config, const Schedule& schedule,
                                              const LocalRanks& ranks, ProcessGroup* processes,
                                              const BatchSource& source);

// Returns the shard that the stage trains: that of its rank if it is the rank's first stage, else
// null.
std::shared_ptr<TorchVocabulary> VocabularyOfStage(const VocabularyShards& shards,
                                                   const Schedule& schedule, int stage);

}  // namespace penstock
