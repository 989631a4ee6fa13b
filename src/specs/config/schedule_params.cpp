#include "config/schedule_params.h"

#include "schedule/text/cost_text.h"

namespace penstock {

Result<ScheduleParams> ParamsOf(const PipelineConfig& pipeline) {
  ScheduleParams params;
  params.ranks = pipeline.ranks;
  params.chunks = pipeline.chunks;
  params.microbatches = pipeline.microbatches;
  params.slices = pipeline.slices;
  params.split = pipeline.split;
  params.group = pipeline.group;
  params.waves = pipeline.waves;
  if (pipeline.memory_limit > 0) params.memory_limit = pipeline.memory_limit;
  if (!pipeline.cost.empty()) {
    const auto cost = ParseCost(pipeline.cost);
    if (!cost) return InvalidParameter("pipeline.cost", ": {}", cost.error().line());
    params.forward = cost->forward;
    params.backward_input = cost->backward_input;
    params.backward_weight = cost->backward_weight;
  }
  if (const Status status = CheckTime(pipeline.comm); !status) {
    return InvalidParameter("pipeline.comm", ": {}", status.error().line());
  }
  params.comm = pipeline.comm;
  if (!pipeline.overlap.empty()) {
    const auto overlap = ParseOverlap(pipeline.overlap);
    if (!overlap) return InvalidParameter("pipeline.overlap", ": {}", overlap.error().line());
    params.overlap = *overlap;
  }
  return params;
}

const char* ScheduleKey(const PipelineConfig& pipeline) {
  return pipeline.csv.empty() ? "pipeline.schedule" : "pipeline.csv";
}

Status RefuseForCsv(const PipelineConfig& pipeline) {
  const std::pair<const char*, bool> given[] = {
      {"pipeline.group", pipeline.group != 0},
      {"pipeline.waves", pipeline.waves != 0},
      {"pipeline.split", pipeline.split},
      {"pipeline.memory_limit", pipeline.memory_limit != 0},
      {"pipeline.cost", !pipeline.cost.empty()},
      {"pipeline.comm", pipeline.comm != 0},
      {"pipeline.overlap", !pipeline.overlap.empty()}};
  for (const auto& [key, is_given] : given) {
    if (!is_given) continue;
    return InvalidParameter(key,
                            "has no effect, because the schedule is read from a file: remove it");
  }
  return {};
}

}  // namespace penstock
