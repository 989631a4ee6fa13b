#include "train/stage/stage_options.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "config/replicas.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "graph/ops/module_scope.h"
#include "model/model_entry.h"
#include "train/stage/offload_and_recompute.h"

namespace penstock {

Result<TorchStageOptions> ScheduledOptions(const Schedule& schedule, const ParallelConfig& parallel,
                                           int stage) {
  const Placement& placement = schedule.placement;
  TorchStageOptions options;
  options.first = placement.previous(stage) < 0;
  options.last = placement.next(stage) < 0;
  // Then the shards of the vocabulary read the batches and compute the loss.
  if (schedule.vocabulary) options.first = options.last = false;
  options.replicas.count = placement.replicas();
  options.replicas.chain = stage / placement.chain_length();
  options.replicas.zero = ZeroOf(parallel, schedule);
  options.replicas.shards = ShardsOfStage(parallel, schedule);
  if (parallel.expert > 1) {
    options.replicas.expert_ranks = parallel.expert;
    for (int chain = 0; chain < options.replicas.count; ++chain) {
      options.replicas.expert_parts.push_back(ExpertPartOf(parallel, schedule, chain));
    }
    PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(parallel));
    if (link) options.costs = NodeCosts(*link);
  }
  options.microbatches = schedule.microbatches / placement.replicas() * schedule.slices;
  options.steps = schedule.steps;
  options.weights = schedule.weights;
  PENSTOCK_TRY(options.versions, VersionsOf(schedule, stage));
  options.recomputed = RecomputedMicrobatches(schedule, stage);
  // Each microbatch has its own update, from the gradient of its own loss.
  if (schedule.weights == WeightPolicy::kStashed) options.mean_over = 1;
  return options;
}

namespace {

void SetShared(const std::vector<SharedParameter>& shared, int model_stage,
               TorchStageOptions& options) {
  for (const SharedParameter& parameter : shared) {
    auto& own = options.shared.emplace_back();
    const std::vector<int>& stages = parameter.stages;
    const auto found = std::find(stages.begin(), stages.end(), model_stage);
    if (found == stages.end()) continue;
    own = {parameter.name, static_cast<int>(found - stages.begin()),
           static_cast<int>(stages.size())};
  }
}

Status SetConfigured(const TrainConfig& config, TorchStageOptions& options) {
  options.slice_lengths = SliceLengths(config);
  options.lengths = MicrobatchLengths(config);
  options.exact = config.exact;
  options.fuse = config.fuse;
  if (config.optimizer.gradient_dtype == "bf16") options.gradient_dtype = at::kBFloat16;
  PENSTOCK_TRY(options.save, SavePolicyOf(config.recompute));
  options.seed = config.seed;
  return {};
}

}  // namespace

Result<SavePolicy> SavePolicyOf(const RecomputeConfig& config) {
  SavePolicy policy;
  PENSTOCK_TRY(policy.budget, ParseSavedBytes(config.hold));
  PENSTOCK_TRY(policy.budget_for_weight, ParseSavedBytes(config.hold_for_weight));
  if (config.modules == "all") return policy;
  for (const auto& [kind, name] : kModuleNames) {
    if (config.modules.find(name) != std::string::npos) policy.modules.push_back(kind);
  }
  if (policy.budget == kSaveAll) policy.budget = 0;
  return policy;
}

Result<TorchStageOptions> OptionsOfStage(const TrainConfig& config, const Schedule& schedule,
                                         const std::vector<SharedParameter>& shared, int stage) {
  const int model_stage = schedule.placement.model_stage(stage);
  PENSTOCK_TRY(TorchStageOptions options, ScheduledOptions(schedule, config.parallel, stage));
  PENSTOCK_TRY_STATUS(SetConfigured(config, options));
  SetShared(shared, model_stage, options);
  const ModelEntry* const model = FindModelEntry(config.model.name);
  if (config.parallel.expert > 1 && model != nullptr)
    options.replicas.is_per_expert = model->is_per_expert;
  return options;
}

}  // namespace penstock
