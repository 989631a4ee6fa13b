#include "plan/figures/schedule_figures.h"

#include <algorithm>

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

Json FiguresOf(const PlannedSchedule& planned, double lower_bound) {
  return {{"schedule", planned.name},
          {"ranks", planned.schedule.ranks()},
          {"chunks", planned.schedule.placement.chunks()},
          {"weight_copies", planned.schedule.placement.replicas()},
          {"microbatches", planned.schedule.microbatches},
          {"makespan", planned.makespan},
          {"peak_memory", planned.peak_memory},
          {"lower_bound", lower_bound},
          {"gap", GapOf(planned.length, lower_bound)}};
}

// Ends with the answer, which may be longer than the last improvement.
Json ToJson(const std::vector<Improvement>& improvements, double length, double seconds) {
  Json list = Json::array();
  for (const Improvement& one : improvements) {
    if (!(one.length > length)) break;
    list.push_back({{"seconds", one.seconds}, {"length", one.length}});
  }
  const auto reached = std::ranges::find_if(
      improvements, [&](const Improvement& one) { return one.length <= length; });
  list.push_back({{"seconds", reached != improvements.end() ? reached->seconds : seconds},
                  {"length", length}});
  return list;
}

}  // namespace

double GapOf(double length, double bound) { return bound > 0 ? length / bound - 1 : 0; }

Json FiguresOf(const SchedulePlan& plan, const std::vector<Improvement>& improvements,
               double seconds) {
  Json best = FiguresOf(plan.best(), plan.lower_bound);
  best["placement_bound"] = plan.best().placement_bound;
  Json front = Json::array();
  for (const PlannedSchedule& planned : plan.front) {
    front.push_back(FiguresOf(planned, planned.lower_bound));
  }
  return {{"best", std::move(best)},
          {"front", std::move(front)},
          {"searched", plan.searches},
          {"stopped", plan.stopped},
          {"seconds", seconds},
          {"improvements", ToJson(improvements, plan.best().length, seconds)}};
}

}  // namespace penstock
