#include "config/run_to_price.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "config/replicas.h"
#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "model_spec/model_spec.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

constexpr int kCores = 4;
constexpr int kDevicesPerNode = 8;

// The first nodes that have this many devices.
std::string NodesOf(int devices) {
  if (devices <= kDevicesPerNode) return fmt::format("1x{}", devices);
  return fmt::format("{}x{}", (devices + kDevicesPerNode - 1) / kDevicesPerNode, kDevicesPerNode);
}

std::vector<std::string> PassesOf(const TrainConfig& config, int zero) {
  std::vector<std::string> passes;
  if (config.parallel.shard_vocabulary) passes.emplace_back("vocabulary");
  if (config.recompute.hold == "least") passes.emplace_back("recompute");
  if (zero == 2) passes.emplace_back("reduce-grad");
  if (zero == 3) {
    passes.push_back(
        fmt::format("sharding={}:{}", config.parallel.lookahead, config.parallel.residency));
  }
  passes.emplace_back(config.optimizer.post_validation ? "optimizer=post-validation" : "optimizer");
  return passes;
}

std::vector<std::string> NotPriced(const TrainConfig& config) {
  const std::string& hold = config.recompute.hold;
  const std::pair<const char*, bool> keys[] = {
      {"data.lengths", !config.data.lengths.empty()},
      {"model.predictor", HasPredictor(config)},
      {"pipeline.slice_lengths", !config.pipeline.slice_lengths.empty()},
      {"pipeline.memory_limit", config.pipeline.memory_limit > 0},
      {"pipeline.cost", !config.pipeline.cost.empty()},
      {"pipeline.comm", config.pipeline.comm > 0},
      {"parallel.link", !config.parallel.link.empty()},
      {"recompute.hold", hold != "all" && hold != "least"},
      {"recompute.hold_for_weight", config.recompute.hold_for_weight != "all"},
      {"recompute.modules", config.recompute.modules != "all"},
      {"optimizer.name", config.optimizer.name != "adamw"},
      {"optimizer.gradient_dtype", config.optimizer.gradient_dtype != "f32"},
      {"optimizer.ema", config.optimizer.ema > 0}};
  std::vector<std::string> names;
  for (const auto& [key, is_set] : keys) {
    if (is_set) names.emplace_back(key);
  }
  return names;
}

}  // namespace

bool IsTrainConfig(const YAML::Node& root) {
  if (!root.IsMap()) return false;
  constexpr std::array kSections = {"model",   "data",      "pipeline",   "parallel",  "recompute",
                                    "offload", "optimizer", "checkpoint", "validation"};
  return std::ranges::any_of(kSections, [&](const char* section) {
    const YAML::Node node = root[section];
    return node.IsDefined() && node.IsMap();
  });
}

Result<RunToPrice> RunToPriceOf(TrainConfig config) {
  RunToPrice run;
  PENSTOCK_TRY(run.shape, ShapeOf(config.model));
  run.not_priced = NotPriced(config);
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, kCores));
  const PipelineConfig& pipeline = config.pipeline;
  const ParallelConfig& parallel = config.parallel;
  const auto add = [&](const char* name, const auto& value) {
    run.fields.emplace_back(name, fmt::format("{}", value));
  };
  if (pipeline.csv.empty()) {
    add("schedule", pipeline.schedule);
    add("microbatches", pipeline.microbatches / parallel.data);
    const SupportedParameters& supported = (*FindAlgorithm(pipeline.schedule))->supported;
    if (supported.max_chunks > supported.min_chunks) add("chunks", pipeline.chunks);
    if (pipeline.slices > 1) add("slices", pipeline.slices);
    if (pipeline.group > 0) add("group", pipeline.group);
    if (pipeline.waves > 0) add("waves", pipeline.waves);
    if (pipeline.split) add("split", true);
    if (!pipeline.overlap.empty()) add("overlap", pipeline.overlap);
  } else {
    add("csv", pipeline.csv);
  }
  add("ranks", pipeline.ranks);
  if (!pipeline.stage_layers.empty()) {
    add("layout", fmt::format("{}", fmt::join(pipeline.stage_layers, ",")));
  }
  add("precision", config.precision);
  add("micro_batch_size", config.batch);
  add("sequence", config.model.sequence);
  add("nodes", NodesOf(pipeline.ranks * parallel.data * parallel.tensor * parallel.context));
  if (parallel.data > 1) add("data_parallel", parallel.data);
  if (parallel.expert > 1) add("expert", parallel.expert);
  if (parallel.tensor > 1) add("tensor", parallel.tensor);
  if (parallel.tensor > 1 && parallel.expert_tensor > 0) {
    add("expert_tensor", parallel.expert_tensor);
  }
  if (parallel.tensor > 1 && !DividesTokens(config)) add("sequence_parallel", false);
  if (parallel.gather_again) add("gather_again", true);
  if (parallel.context > 1) add("context", parallel.context);
  if (parallel.context > 1) add("context_exchange", parallel.context_exchange);
  const int zero = ZeroOf(parallel, schedule);
  if (zero > 0 && parallel.data > 1) add("zero", zero);
  if (!pipeline.csv.empty()) return run;
  for (const std::string& pass : PassesOf(config, parallel.data > 1 ? zero : 0)) add("pass", pass);
  return run;
}

}  // namespace penstock
