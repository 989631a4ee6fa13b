#include "plan/search/training_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <utility>

namespace penstock {

double TrainingPlan::busy() const { return std::ranges::max(rank_busy); }

double TrainingPlan::mean_busy() const {
  const double all = std::accumulate(rank_busy.begin(), rank_busy.end(), 0.0);
  return all / static_cast<double>(rank_busy.size());
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
  const auto after = [](const TrainingPlan& each) {
    return each.step_time() - each.estimate.makespan;
  };
  const auto bubble = [](const TrainingPlan& each) {
    return each.estimate.makespan - each.mean_busy();
  };
  std::array<std::pair<double, const char*>, 6> parts = {
      {{plan.parts.compute - best.parts.compute, "compute"},
       {plan.parts.recompute - best.parts.recompute, "recomputation"},
       {plan.parts.offload - best.parts.offload, "offloading"},
       {plan.parts.communication - best.parts.communication, "exposed communication of layers"},
       {bubble(plan) - bubble(best), "bubble"},
       {after(plan) - after(best), "gradients and update"}}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<double, const char*>::first);
  constexpr double kLeast = 0.001;  // of the step
  std::string text =
      fmt::format("{:+.1f}%: {} {:+.3g} s", (plan.step_time() / best.step_time() - 1) * 100,
                  parts[0].second, parts[0].first);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].first < kLeast * best.step_time()) break;
    text += fmt::format(", {} {:+.3g} s", parts[i].second, parts[i].first);
  }
  return text;
}

}  // namespace penstock
