#include "monitor/run_status.h"

#include <algorithm>
#include <cmath>

#include "base/index.h"

namespace penstock {
namespace {

using Steps = std::span<const StepMetric>;

// A run is stalled if it takes this many times as long as its last steps, and at least so long.
constexpr double kStallFactor = 10;
constexpr double kLeastStall = 10;  // seconds

RunState StateOf(const RunStatus& status, const RunSigns& signs) {
  // Lines from before the start of the process belong to an earlier process.
  if (signs.has_process && signs.changed < signs.locked) return RunState::kStarting;
  if (status.done >= status.run.steps) return RunState::kFinished;
  if (signs.has_process) return status.done > 0 ? RunState::kRunning : RunState::kStarting;
  // A run with a time limit, or one that stops early, has fewer steps than the maximum.
  if (status.run.seconds > 0 && status.done > 0) return RunState::kFinished;
  if (signs.weights > 0 && signs.weights >= signs.changed && status.done > 0)
    return RunState::kFinished;
  return RunState::kStopped;
}

std::optional<double> MeanLoss(Steps steps) {
  double sum = 0;
  int count = 0;
  for (const StepMetric& step : steps) {
    if (!std::isfinite(step.loss)) continue;
    sum += step.loss;
    ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

// Returns the mean time of the last `count` steps.
double MeanStepSeconds(Steps all, std::size_t count) {
  const double before = all.size() > count ? all[all.size() - count - 1].seconds : 0;
  return (all.back().seconds - before) / static_cast<double>(count);
}

double MedianOver(Steps steps, const auto& value) {
  std::vector<double> values;
  for (const StepMetric& step : steps) values.push_back(value(step));
  return MedianValue(std::move(values));
}

// Returns the last steps whose lines have the figures of as many ranks as the last line.
Steps WithSameRanks(Steps all) {
  std::size_t first = all.size();
  while (first > 0 && all[first - 1].ranks.size() == all.back().ranks.size()) --first;
  return all.subspan(first);
}

std::vector<RankMetric> RankMedians(Steps steps) {
  std::vector<RankMetric> ranks(steps.back().ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].busy = MedianOver(steps, [&](const auto& step) { return step.ranks[rank].busy; });
    ranks[rank].bubble =
        MedianOver(steps, [&](const auto& step) { return step.ranks[rank].bubble; });
    for (const StepMetric& step : steps) {
      ranks[rank].peak_activation_bytes =
          std::max(ranks[rank].peak_activation_bytes, step.ranks[rank].peak_activation_bytes);
    }
  }
  return ranks;
}

void AddFigures(RunStatus& status) {
  const Steps all = status.metrics;
  const std::size_t count = std::min(all.size(), Index(kRecentSteps));
  const Steps recent = all.last(count);
  const Steps before = all.first(all.size() - count);
  const StepMetric& last = all.back();
  status.loss = MeanLoss(recent);
  status.earlier_loss = MeanLoss(before.last(std::min(before.size(), count)));
  status.grad_norm = last.grad_norm;
  status.lr = last.lr;
  status.seconds = last.seconds;
  status.step_seconds = MeanStepSeconds(all, count);
  if (status.step_seconds > 0) {
    status.tokens_per_second = status.run.tokens_per_step / status.step_seconds;
  }
  status.bubble = MedianOver(recent, [](const auto& step) { return step.bubble; });
  status.clipped = std::ranges::count(all, true, &StepMetric::clipped);
  status.skipped = std::ranges::count(all, true, &StepMetric::skipped);
  const Steps same = WithSameRanks(all);
  status.ranks = RankMedians(same.last(std::min(same.size(), count)));
  status.stragglers = FindStragglers(same, status.run.work);
}

void AddTimes(const RunSigns& signs, RunStatus& status) {
  status.age = std::max(0.0, signs.now - signs.changed);
  if (status.state != RunState::kRunning) return;
  double left = status.step_seconds * static_cast<double>(status.run.steps - status.done);
  if (status.run.seconds > 0) left = std::min(left, status.run.seconds - status.seconds);
  status.seconds_left = std::max(0.0, left);
  status.stalled = *status.age > std::max(kLeastStall, kStallFactor * status.step_seconds);
}

}  // namespace

const char* StateName(RunState state) {
  switch (state) {
    case RunState::kWaiting:
      return "waiting";
    case RunState::kStarting:
      return "starting";
    case RunState::kRunning:
      return "running";
    case RunState::kStopped:
      return "stopped";
    case RunState::kFinished:
      return "finished";
  }
  return "";
}

RunStatus StatusOf(RunDescription run, std::span<const StepMetric> metrics, const RunSigns& signs) {
  RunStatus status;
  status.run = std::move(run);
  status.done = metrics.empty() ? 0 : metrics.back().step + 1;
  status.state = StateOf(status, signs);
  if (status.state == RunState::kStarting) {
    status.done = 0;
    return status;
  }
  if (metrics.empty()) return status;
  status.metrics = metrics;
  AddFigures(status);
  AddTimes(signs, status);
  return status;
}

}  // namespace penstock
