#include "config/stage_ranges.h"

#include <fmt/ranges.h>

#include "config/schedule_params.h"

namespace penstock {

Result<std::vector<LayerRange>> StageRanges(const TrainConfig& config, int stages) {
  auto ranges = SplitLayers(config.model.layers, stages, config.pipeline.stage_layers);
  if (!ranges) {
    return tl::unexpected(
        Located(ranges.error(), config, {"pipeline.stage_layers", "model.layers", "pipeline"}));
  }
  for (LayerRange& range : *ranges) range.sharded_vocabulary = config.parallel.shard_vocabulary;
  return ranges;
}

Status SetShared(const TrainConfig& config, Schedule& schedule) {
  PENSTOCK_TRY(const std::vector<LayerRange> ranges,
               StageRanges(config, schedule.placement.chain_length()));
  schedule.shared.clear();
  for (const SharedParameter& parameter : SharedParameters(config.model, ranges)) {
    if (schedule.weights != WeightPolicy::kFlush) {
      return InvalidParameter(
          ScheduleKey(config.pipeline),
          ": stages {} share {}, but schedule '{}' does not flush, so they would update it at "
          "different times: use a schedule that flushes{}{}",
          fmt::join(parameter.stages, ", "), parameter.name, schedule.algorithm,
          parameter.instead.empty() ? "" : ", or ", parameter.instead);
    }
    schedule.shared.push_back(parameter.stages);
  }
  return {};
}

}  // namespace penstock
