#include "simulate/summary.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {

std::size_t CountMessages(const Schedule& schedule) {
  std::size_t edges = 0;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    for (const ValueKind kind : {ValueKind::kActivation, ValueKind::kGradient}) {
      const int reader = ReaderOf(schedule, kind, stage);
      if (reader < 0) continue;
      if (schedule.placement.rank_of(reader) != schedule.placement.rank_of(stage)) ++edges;
    }
  }
  return edges * Index(schedule.indices());
}

void FillTotals(const Schedule& schedule, SimulationResult& result) {
  double ideal = 0;
  double longest = 0;
  for (const RankResult& rank : result.ranks) {
    result.makespan = std::max(result.makespan, rank.last_end);
    result.peak_memory = std::max(result.peak_memory, rank.peak_memory);
    ideal = std::max(ideal, rank.busy);
    longest = std::max(longest, rank.last_end - rank.first_start);
  }
  if (result.makespan > 0) result.bubble = 1 - ideal / result.makespan;
  if (longest > 0) result.span_bubble = 1 - ideal / longest;
  result.messages = CountMessages(schedule);
}

SimulationResult Summarize(const Schedule& schedule, const Timeline& timeline) {
  PENSTOCK_CHECK(timeline.spans.size() == schedule.lanes.size());
  SimulationResult result;
  for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
    PENSTOCK_CHECK(timeline.spans[r].size() == schedule.lanes[r].size());
    RankResult rank;
    bool started = false;
    for (std::size_t i = 0; i < schedule.lanes[r].size(); ++i) {
      const Action& action = schedule.lanes[r][i];
      const Span& span = timeline.spans[r][i];
      if (HasDuration(action.first.op)) rank.last_end = std::max(rank.last_end, span.end);
      if (OccupiesRank(action.first.op)) rank.busy += span.end - span.start;
      if (!IsCompute(action)) continue;
      if (!started) rank.first_start = span.start;
      started = true;
      ++result.actions;
    }
    result.ranks.push_back(rank);
  }
  FillTotals(schedule, result);
  return result;
}

}  // namespace penstock
