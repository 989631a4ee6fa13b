#include "simulate/runs/monte_carlo.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/index.h"
#include "base/mutex.h"
#include "base/system/on_all_cores.h"
#include "simulate/noise/jitter.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Figures {
  double makespan = 0, bubble = 0, span_bubble = 0;
};

// The figures of each run. Once a run has failed, others do not begin.
Result<std::vector<Figures>> FiguresOfRuns(const Schedule& schedule, const Costs& costs,
                                           const MonteCarloOptions& options) {
  std::vector<Figures> figures(Index(options.runs));
  std::atomic<bool> has_failed{false};
  Mutex mutex;
  std::optional<Error> error;
  const auto run = [&](std::size_t i) {
    if (has_failed) return;
    const Jitter jitter(options.jitter, options.seed, i);
    const auto result = Simulate(schedule, costs, {.jitter = &jitter});
    if (result) {
      figures[i] = {result->makespan, result->bubble, result->span_bubble};
      return;
    }
    const MutexLock lock(mutex);
    error = result.error();
    has_failed = true;
  };
  OnAllCores(figures.size(), run, options.threads > 0 ? options.threads : Cores());
  if (error) return tl::unexpected(*error);
  return figures;
}

Spread SpreadOf(const std::vector<Figures>& figures, double Figures::*figure) {
  std::vector<double> values;
  double sum = 0;
  for (const Figures& run : figures) {
    values.push_back(run.*figure);
    sum += run.*figure;
  }
  std::ranges::sort(values);
  const auto percentile = [&](std::size_t percent) {
    return values[(values.size() * percent + 99) / 100 - 1];
  };
  return {sum / static_cast<double>(values.size()), percentile(50), percentile(95)};
}

}  // namespace

Result<MonteCarloResult> SimulateRuns(const Schedule& schedule, const Costs& costs,
                                      const MonteCarloOptions& options) {
  PENSTOCK_CHECK(options.runs >= 1 && options.jitter >= 0 && options.jitter <= kMostJitter,
                 "{} runs with a jitter of {}", options.runs, options.jitter);
  MonteCarloOptions asked = options;
  if (options.jitter == 0) asked.runs = 1;  // all are the same
  PENSTOCK_TRY(const std::vector<Figures> figures, FiguresOfRuns(schedule, costs, asked));
  return MonteCarloResult{SpreadOf(figures, &Figures::makespan),
                          SpreadOf(figures, &Figures::bubble),
                          SpreadOf(figures, &Figures::span_bubble)};
}

}  // namespace penstock
