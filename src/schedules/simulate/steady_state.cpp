#include "simulate/steady_state.h"

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

// Finds the step that an action belongs to. A stage's STEPs are counted.
class StepCounter {
 public:
  explicit StepCounter(const Schedule& schedule)
      : indices_(schedule.indices() / schedule.steps),
        updates_per_step_(schedule.weights == WeightPolicy::kStashed
                              ? Index(schedule.microbatches / schedule.placement.replicas())
                              : 1),
        updates_(Index(schedule.stages())) {}

  std::size_t StepOf(const Part& part) {
    if (HasMicrobatch(part.op)) return Index(part.microbatch / indices_);
    const std::size_t update = part.op == Op::kStep ? updates_[part.stage]++ : updates_[part.stage];
    return update / updates_per_step_;
  }

 private:
  int indices_;  // of one step
  std::size_t updates_per_step_;
  std::vector<std::size_t> updates_;  // by stage: STEPs so far
};

std::vector<double> EndsOfSteps(const Schedule& schedule, const Timeline& timeline) {
  std::vector<double> ends(Index(schedule.steps));
  std::vector<std::size_t> latest(Index(schedule.stages()));  // by stage: step of its last action
  StepCounter counter(schedule);
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    const Lane& lane = schedule.lanes[rank];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      ForEachPart(lane[i], [&](const Part& part) {
        std::size_t step = std::min(counter.StepOf(part), ends.size() - 1);
        // There may be no STEPs that count the REDUCE_GRADs.
        if (part.op == Op::kReduceGrad) step = latest[part.stage];
        if (!OccupiesRank(part.op) && part.op != Op::kReduceGrad) return;
        latest[part.stage] = step;
        ends[step] = std::max(ends[step], timeline.spans[rank][i].end);
      });
    }
  }
  return ends;
}

}  // namespace

Schedule Repeated(const Schedule& schedule, int count) {
  PENSTOCK_CHECK(count == 1 || schedule.weights == WeightPolicy::kFlush,
                 "a schedule without a flush holds its own steps");
  Schedule repeated = schedule;
  repeated.steps = schedule.steps * count;
  const int indices = schedule.indices();
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    Lane& lane = repeated.lanes[rank];
    lane.reserve(schedule.lanes[rank].size() * Index(count));
    for (int step = 1; step < count; ++step) {
      for (Action action : schedule.lanes[rank]) {
        if (HasMicrobatch(action.first.op)) action.first.microbatch += step * indices;
        if (action.is_pair()) action.second.microbatch += step * indices;
        lane.push_back(action);
      }
    }
  }
  return repeated;
}

Result<double> SteadyStepTime(const Schedule& schedule, const Costs& costs) {
  PENSTOCK_CHECK(schedule.steps >= 2, "{} steps have no steady state", schedule.steps);
  Timeline timeline;
  PENSTOCK_TRY_STATUS(Simulate(schedule, costs, {.timeline = &timeline}));
  const std::vector<double> ends = EndsOfSteps(schedule, timeline);
  const std::size_t last = ends.size() - 1, half = std::max<std::size_t>(1, ends.size() / 2);
  return (ends[last] - ends[last - half]) / static_cast<double>(half);
}

}  // namespace penstock
