// Creates the shards of a run's vocabulary. Private to train/.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "runtime/hosts/host_group.h"
#include "runtime/hosts/hosted_ranks.h"
#include "schedule/schedule.h"
#include "train/stage/torch_vocabulary.h"

namespace penstock {

// By rank; null for ranks of other hosts, and empty unless the schedule shards the vocabulary.
using VocabularyShards = std::vector<std::shared_ptr<TorchVocabulary>>;

// Creates the shards with their initial values. As BuildPipeline otherwise.
Result<VocabularyShards> MakeVocabulary(const TrainConfig& config, const Schedule& schedule,
                                        const HostedRanks& ranks, HostGroup* hosts,
                                        const BatchSource& source);

// Returns the shard that the stage trains: that of its rank if it is the rank's first stage, else
// null.
std::shared_ptr<TorchVocabulary> VocabularyOfStage(const VocabularyShards& shards,
                                                   const Schedule& schedule, int stage);

}  // namespace penstock
