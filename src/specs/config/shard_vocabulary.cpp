#include "config/shard_vocabulary.h"

#include <utility>

#include "config/schedule_params.h"
#include "schedule/passes/passes.h"

namespace penstock {
namespace {

// Estimates the prices of the passes from FLOPs: a layer has about 12 dim^2 weights, and F computes
// one product with each. S computes two products with the rank's rows of the head, and T one.
Result<Costs> EstimateCosts(const TrainConfig& config, const Schedule& schedule) {
  PENSTOCK_TRY(const ScheduleParams params, ParamsOf(config.pipeline));
  const ModelConfig& model = config.model;
  constexpr double kWeightsPerLayer = 12;
  const double head_per_layers =
      static_cast<double>(model.vocabulary) /
      (kWeightsPerLayer * static_cast<double>(model.dim) * static_cast<double>(model.layers));
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, params.forward,
                               params.backward_input, params.backward_weight, params.comm);
  costs.exchange = params.comm;
  for (StageCosts& stage : costs.stages) {
    stage.vocabulary_input = 2 * params.forward * head_per_layers;
    stage.vocabulary_weight = params.forward * head_per_layers;
  }
  return costs;
}

Status CheckSharded(const TrainConfig& config, const Schedule& schedule) {
  if (schedule.slices > 1 || schedule.steps > 1 || schedule.weights != WeightPolicy::kFlush) {
    return InvalidParameter("parallel.shard_vocabulary",
                            ": schedule '{}' has slices of a sequence or no flush, which "
                            "cannot be combined with a sharded vocabulary",
                            schedule.algorithm);
  }
  // The first stage would need tokens as well as embedded ones, and the tables have one shape.
  if (config.data.document_mask || !config.data.lengths.empty()) {
    return InvalidParameter("parallel.shard_vocabulary", "cannot be combined with {}",
                            config.data.document_mask ? "data.document_mask" : "data.lengths");
  }
  if (config.model.vocabulary < schedule.ranks()) {
    return InvalidParameter("parallel.shard_vocabulary",
                            ": {} ranks cannot share {} tokens (model.vocabulary)",
                            schedule.ranks(), config.model.vocabulary);
  }
  const auto tables = VocabularyTablesOf(config.model);
  return tables ? Status() : tl::unexpected(tables.error());
}

}  // namespace

RowRange RowsOfRank(std::int64_t vocabulary, int ranks, int rank) {
  return {vocabulary * rank / ranks, vocabulary * (rank + 1) / ranks};
}

Result<Schedule> ShardVocabulary(Schedule schedule, TrainConfig& config) {
  bool& asked = config.parallel.shard_vocabulary;
  if (asked && !schedule.vocabulary) {
    PENSTOCK_TRY(const Costs costs, EstimateCosts(config, schedule));
    auto sharded = AddVocabulary(schedule, costs);
    if (!sharded) {
      return InvalidParameter("parallel.shard_vocabulary", ": {}", sharded.error().line());
    }
    schedule = *std::move(sharded);
  }
  asked = schedule.vocabulary;
  if (asked) PENSTOCK_TRY_STATUS(CheckSharded(config, schedule));
  return schedule;
}

}  // namespace penstock
