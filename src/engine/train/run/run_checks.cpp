#include "train/run/run_checks.h"

#include "config/parameter_rules.h"
#include "config/replicas.h"
#include "config/sequence_lengths.h"
#include "graph/capture/shapes_only.h"
#include "model/model.h"

namespace penstock {
namespace {

// Every group must be the first match of a parameter of the model.
Status CheckGroups(const TrainConfig& config) {
  if (config.optimizer.groups.empty()) return {};
  const ShapesOnly shapes;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.model.layers, 1, {}));
  PENSTOCK_TRY(const std::shared_ptr<StageModule> module, BuildStage(config.model, ranges.front()));
  std::vector<std::string> names;
  for (const auto& parameter : module->named_parameters()) names.push_back(parameter.key());
  return ParameterRules(config.optimizer).Check(names);
}

Status CheckShardedVocabulary(const TrainConfig& config) {
  if (!config.parallel.shard_vocabulary) return {};
  PENSTOCK_TRY(const VocabularyTables tables, VocabularyTablesOf(config.model));
  const ParameterRules rules(config.optimizer);
  for (const std::string& name : tables.names()) {
    if (!rules.Of(name, 2).muon) continue;
    return InvalidParameter("parallel.shard_vocabulary",
                            ": Muon updates whole matrices, and each rank has some rows of "
                            "{}; use AdamW for it (optimizer.groups)",
                            name);
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> CheckRun(const TrainConfig& config) {
  for (const std::int64_t step : config.trace_steps) {
    if (step < config.steps) continue;
    return InvalidParameter("trace_steps", ": the run has no step {}; its steps are 0 to {}", step,
                            config.steps - 1);
  }
  const bool evaluates = config.validation.freq > 0;
  if (!evaluates && (config.validation.patience > 0 || config.checkpoint.best)) {
    return InvalidArgument("{} has no effect without validation.freq: set it",
                           config.checkpoint.best ? "checkpoint.best" : "validation.patience");
  }
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.post_validation && !UpdateRuleOf(optimizer).needs_norm()) {
    return InvalidParameter("optimizer.post_validation",
                            "has no effect without optimizer.clip or "
                            "optimizer.nonfinite=skip: set one of them");
  }
  const ParallelConfig& parallel = config.parallel;
  const bool gathers_keys = parallel.context > 1 && parallel.context_exchange == "all-gather";
  if (parallel.gather_again && parallel.tensor == 1 && !gathers_keys) {
    return InvalidParameter("parallel.gather_again",
                            "has no effect without parallel.tensor, or parallel.context with "
                            "all-gather: set one of them, because no other rank gathers");
  }
  PENSTOCK_TRY_STATUS(CheckGroups(config));
  PENSTOCK_TRY_STATUS(CheckShardedVocabulary(config));
  std::vector<std::string> lines;
  if (parallel.tensor > 1 && parallel.sequence_parallel && !DividesTokens(config)) {
    lines.push_back(fmt::format(
        "parallel.sequence_parallel: {} ranks have all tokens between layers, because {}",
        parallel.tensor, ReasonForAllTokens(config)));
  }
  if (optimizer.warmup > config.steps) {
    lines.push_back(fmt::format(
        "optimizer.warmup is {} steps and the run has {}: the learning rate ends at "
        "{:.3g}, below its peak of {:.3g}",
        optimizer.warmup, config.steps,
        optimizer.lr * static_cast<double>(config.steps) / optimizer.warmup, optimizer.lr));
  }
  return lines;
}

}  // namespace penstock
