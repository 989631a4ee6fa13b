#include "monitor/run_description.h"

#include "base/index.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "config/train_config.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

std::vector<RankWork> WorkOf(const Placement& placement, const std::vector<LayerRange>& stages) {
  std::vector<RankWork> work(Index(placement.ranks()));
  for (int stage = 0; stage < placement.stages(); ++stage) {
    RankWork& own = work[Index(placement.rank_of(stage))];
    const LayerRange& range = stages[Index(placement.model_stage(stage))];
    own.layers += range.end - range.begin;
    own.first_stages += range.embedding ? 1 : 0;
    own.last_stages += range.head ? 1 : 0;
  }
  return work;
}

Result<TrainConfig> ReadConfiguration(const std::string& path) {
  auto config = LoadRunConfig(path);
  if (!config && config.error().code == ErrorCode::kNotFound) return config;
  const auto refuse = [&](const std::string& why) {
    return InvalidArgument("{} is not the configuration of a run: {}", path, why);
  };
  if (!config) return refuse(config.error().line());
  for (const char* const key :
       {"steps", "batch", "pipeline.microbatches", "model.sequence", "model.layers"}) {
    if (!config->places.contains(key)) return refuse(fmt::format("the key {} is missing", key));
  }
  return config;
}

}  // namespace

Result<RunDescription> ReadDescription(const std::string& folder) {
  PENSTOCK_TRY(const TrainConfig config, ReadConfiguration(folder + "/config.yaml"));
  const PipelineConfig& pipeline = config.pipeline;
  RunDescription description;
  description.name = config.name;
  description.schedule = pipeline.csv.empty() ? pipeline.schedule : pipeline.csv;
  description.steps = config.steps;
  description.seconds = config.seconds;
  description.tokens_per_step = static_cast<double>(TokensPerStep(config));
  const auto schedule = LoadSchedule(folder + "/schedule.csv");
  if (!schedule) return description;
  const auto stages = StageRanges(config, schedule->placement.chain_length());
  if (stages) description.work = WorkOf(schedule->placement, *stages);
  return description;
}

}  // namespace penstock
