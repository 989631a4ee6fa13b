#include "simulate/runs/monte_carlo.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "base/index.h"
#include "base/mutex.h"
#include "simulate/noise/jitter.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

struct Figures {
  double makespan = 0, bubble = 0, span_bubble = 0;
};

// Threads that take one run after the other.
class Runs {
 public:
  Runs(const Schedule& schedule, const Costs& costs, const MonteCarloOptions& options)
      : schedule_(schedule), costs_(costs), options_(options), figures_(Index(options.runs)) {}

  Result<std::vector<Figures>> Run() {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    const std::size_t wanted = options_.threads > 0 ? Index(options_.threads) : cores;
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < std::min(wanted, figures_.size()); ++i) {
      others.emplace_back([this] { Work(); });
    }
    Work();
    for (std::thread& other : others) other.join();
    const MutexLock lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
    if (error_) return tl::unexpected(*error_);
    return std::move(figures_);
  }

 private:
  void Work() {
    try {
      for (std::size_t run = next_++; run < figures_.size() && !stop_; run = next_++) Fill(run);
    } catch (...) {
      const MutexLock lock(mutex_);
      exception_ = std::current_exception();
      stop_ = true;
    }
  }

  void Fill(std::size_t run) {
    const Jitter jitter(options_.jitter, options_.seed, run);
    const auto result = Simulate(schedule_, costs_, {.jitter = &jitter});
    if (result) {
      figures_[run] = {result->makespan, result->bubble, result->span_bubble};
      return;
    }
    const MutexLock lock(mutex_);
    error_ = result.error();
    stop_ = true;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const MonteCarloOptions& options_;
  std::vector<Figures> figures_;  // by run, each written by one thread
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::optional<Error> error_ PENSTOCK_GUARDED_BY(mutex_);
  std::exception_ptr exception_ PENSTOCK_GUARDED_BY(mutex_);
};

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
  PENSTOCK_TRY(const std::vector<Figures> figures, Runs(schedule, costs, asked).Run());
  return MonteCarloResult{SpreadOf(figures, &Figures::makespan),
                          SpreadOf(figures, &Figures::bubble),
                          SpreadOf(figures, &Figures::span_bubble)};
}

}  // namespace penstock
