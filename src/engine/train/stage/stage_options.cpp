#include "train/stage/stage_options.h"

#include <algorithm>
#include <optional>
#include <string>

#include "config/replicas.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "graph/ops/module_scope.h"
#include "model/model_entry.h"
#include "train/stage/offload_and_recompute.h"

namespace penstock {

Result<TorchStageOptions> ScheduledOptions(const Schedule& schedule, const ParallelConfig& parallel,
                                           int stage, TorchStageOptions options) {
  const Placement& placement = schedule.placement;
  options.schedule.first = placement.previous(stage) < 0;
  options.schedule.last = placement.next(stage) < 0;
  // Then the shards of the vocabulary read the batches and compute the loss.
  if (schedule.vocabulary) options.schedule.first = options.schedule.last = false;
  options.replicas.count = placement.replicas();
  options.replicas.chain = stage / placement.chain_length();
  options.replicas.zero = ZeroOf(parallel, schedule);
  options.replicas.shards = ShardsOfStage(parallel, schedule);
  if (parallel.expert > 1) {
    options.experts.ranks = parallel.expert;
    const Mesh mesh = MeshOf(parallel, schedule);
    for (int replica = placement.model_stage(stage); replica < placement.stages();
         replica += placement.chain_length()) {
      options.experts.parts.push_back(mesh.PlaceOf(placement.rank_of(replica), Axis::kExpert));
    }
  }
  PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(parallel));
  if (link) options.node_costs = NodeCosts(*link);
  options.schedule.microbatches = schedule.microbatches / placement.replicas() * schedule.slices;
  options.schedule.steps = schedule.steps;
  options.schedule.weights = schedule.weights;
  PENSTOCK_TRY(options.schedule.versions, VersionsOf(schedule, stage));
  options.schedule.recomputed = RecomputedMicrobatches(schedule, stage);
  return options;
}

namespace {

void SetShared(const std::vector<SharedParameter>& shared, int model_stage,
               TorchStageOptions& options) {
  for (const SharedParameter& parameter : shared) {
    auto& own = options.gradients.shared.emplace_back();
    const std::vector<int>& stages = parameter.stages;
    const auto found = std::find(stages.begin(), stages.end(), model_stage);
    if (found == stages.end()) continue;
    own = {parameter.name, static_cast<int>(found - stages.begin()),
           static_cast<int>(stages.size())};
  }
}

Status SetConfigured(const TrainConfig& config, TorchStageOptions& options) {
  options.lengths.of_slices = SliceLengths(config);
  options.lengths.of_microbatches = MicrobatchLengths(config);
  options.lengths.context_ranks = config.parallel.context;
  options.compile.exact = config.exact;
  options.compile.fuse = config.fuse;
  if (config.optimizer.gradient_dtype == "bf16") options.gradients.dtype = at::kBFloat16;
  PENSTOCK_TRY_STATUS(SetRecompute(config, options.compile));
  options.random.seed = config.seed;
  return {};
}

}  // namespace

Status SetRecompute(const TrainConfig& train, CompileOptions& options) {
  const RecomputeConfig& config = train.recompute;
  options.gather_again = train.parallel.gather_again;
  options.ranks_differ = train.parallel.context > 1 && train.parallel.context_exchange != "ulysses";
  PENSTOCK_TRY(options.save_budget, ParseSavedBytes(config.hold));
  PENSTOCK_TRY(options.save_budget_for_weight, ParseSavedBytes(config.hold_for_weight));
  if (config.modules == "all") return {};
  for (const auto& [kind, name] : kModuleNames) {
    if (config.modules.find(name) != std::string::npos) options.recompute_modules.push_back(kind);
  }
  if (options.save_budget == kSaveAll) options.save_budget = 0;
  return {};
}

Result<TorchStageOptions> OptionsOfStage(const TrainConfig& config, const Schedule& schedule,
                                         const std::vector<SharedParameter>& shared, int stage) {
  const int model_stage = schedule.placement.model_stage(stage);
  PENSTOCK_TRY(TorchStageOptions options, ScheduledOptions(schedule, config.parallel, stage, {}));
  PENSTOCK_TRY_STATUS(SetConfigured(config, options));
  SetShared(shared, model_stage, options);
  const ModelEntry* const model = FindModelEntry(config.model.name);
  if (config.parallel.expert > 1 && model != nullptr)
    options.experts.is_per_expert = model->is_per_expert;
  return options;
}

}  // namespace penstock
