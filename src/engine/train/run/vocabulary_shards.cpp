#include "train/run/vocabulary_shards.h"

#include <array>
#include <numeric>
#include <utility>

#include "base/index.h"
#include "model/model.h"
#include "runtime/collectives/rank_groups.h"
#include "train/message/device_group_memory.h"

namespace penstock {
namespace {

VocabularyOptions ShardOptions(const TrainConfig& config, const Schedule& schedule, int rank) {
  VocabularyOptions options;
  options.rank = rank;
  options.ranks = schedule.ranks();
  options.first_rank = schedule.placement.rank_of(0);
  options.last_rank = schedule.placement.rank_of(schedule.stages() - 1);
  options.microbatches = schedule.microbatches;
  options.vocabulary = config.model.vocabulary;
  options.dim = config.model.dim;
  options.batch = config.batch;
  options.length = config.model.sequence;
  options.dtype = config.precision == "bf16" ? at::kBFloat16 : at::kFloat;
  return options;
}

// Returns the rank's rows of the embedding and the head, once if they are tied.
std::vector<NamedTensor> InitialTables(const ModelConfig& model, const VocabularyTables& tables,
                                       const RowRange& rows, c10::Device device) {
  const std::array<std::int64_t, 2> shape = {model.vocabulary, model.dim};
  std::vector<NamedTensor> initial;
  for (const std::string& name : tables.names()) {
    const at::Tensor own = InitialRows(model, name, shape, rows.begin, rows.end);
    initial.push_back({name, own.to(device)});
  }
  return initial;
}

Status CheckConfigured(const TrainConfig& config, const Schedule& schedule) {
  if (config.parallel.shard_vocabulary == schedule.vocabulary) return {};
  return InvalidParameter("parallel.shard_vocabulary",
                          "is {}, but the schedule {} the vocabulary: call ChooseSchedule "
                          "before BuildPipeline",
                          config.parallel.shard_vocabulary,
                          schedule.vocabulary ? "shards" : "does not shard");
}

}  // namespace

Result<VocabularyShards> MakeVocabularyShards(const RunContext& run, const BatchSource& source,
                                              c10::Device device) {
  const TrainConfig& config = run.config;
  const Schedule& schedule = run.schedule;
  PENSTOCK_TRY_STATUS(CheckConfigured(config, schedule));
  if (!schedule.vocabulary) return VocabularyShards();
  PENSTOCK_TRY(const VocabularyTables tables, VocabularyTablesOf(config.model));
  RankGroupMembers all{"vocabulary", std::vector<int>(Index(schedule.ranks()))};
  all.memory = GroupMemoryOn(device);
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  PENSTOCK_TRY(std::vector<RankGroupEnds> groups,
               MakeRankGroups({all}, run.ranks, run.processes.group(), kNoTimeout));
  VocabularyShards shards(Index(schedule.ranks()));
  for (const int rank : run.ranks.here()) {
    VocabularyOptions options = ShardOptions(config, schedule, rank);
    options.device = device;
    const RowRange rows = RowsOfRank(options.vocabulary, options.ranks, rank);
    shards[Index(rank)] = std::make_shared<TorchVocabulary>(
        options, InitialTables(config.model, tables, rows, device),
        source.fork ? source.fork() : source, std::move(groups.front()[Index(rank)]));
  }
  return shards;
}

std::shared_ptr<TorchVocabulary> VocabularyOfStage(const VocabularyShards& shards,
                                                   const Schedule& schedule, int stage) {
  if (shards.empty()) return nullptr;
  const int rank = schedule.placement.rank_of(stage);
  return schedule.placement.stages_of(rank).front() == stage ? shards[Index(rank)] : nullptr;
}

}  // namespace penstock
