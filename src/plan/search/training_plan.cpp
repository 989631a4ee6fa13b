#include "plan/search/training_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock {

bool Dominates(const TrainingPlan& plan, const TrainingPlan& other) {
  if (plan.step_time() > other.step_time() || plan.bytes() > other.bytes()) return false;
  return plan.step_time() < other.step_time() || plan.bytes() < other.bytes();
}

std::vector<TrainingPlan> FrontOf(std::vector<TrainingPlan> plans) {
  std::ranges::stable_sort(plans, [](const TrainingPlan& a, const TrainingPlan& b) {
    return std::pair(a.step_time(), a.bytes()) < std::pair(b.step_time(), b.bytes());
  });
  std::vector<TrainingPlan> front;
  for (TrainingPlan& plan : plans) {
    if (front.empty() || plan.bytes() < front.back().bytes()) front.push_back(std::move(plan));
  }
  return front;
}

std::string WhyNot(const TrainingPlan& plan, const TrainingPlan& best) {
  const StepEstimate& own = plan.estimate;
  const std::array<std::pair<double, const char*>, 3> parts = {
      {{plan.busy - best.busy, "compute and communication of a layer's devices"},
       {plan.idle - best.idle, "bubble"},
       {own.step_time - own.makespan - (best.step_time() - best.estimate.makespan),
        "gradients, update and weights after the pipeline"}}};
  const auto worst = std::ranges::max_element(parts);
  return fmt::format("{:+.1f}%: {} {:+.3g} s", (plan.step_time() / best.step_time() - 1) * 100,
                     worst->second, worst->first);
}

}  // namespace penstock
