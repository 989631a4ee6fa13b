// Creates the shards of a run's vocabulary. Private to train/.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "train/run/run_context.h"
#include "train/stage/torch_vocabulary.h"

namespace penstock {

// By rank; null for ranks of other processes, and empty unless the schedule shards the vocabulary.
using VocabularyShards = std::vector<std::shared_ptr<TorchVocabulary>>;

// Creates the shards with their initial values. As BuildPipeline otherwise.
Result<VocabularyShards> MakeVocabularyShards(const RunContext& run, const BatchSource& source,
                                              c10::Device device);

// Returns the shard that the stage trains: its rank's if it is the rank's first stage, else null.
std::shared_ptr<TorchVocabulary> VocabularyOfStage(const VocabularyShards& shards,
                                                   const Schedule& schedule, int stage);

}  // namespace penstock
