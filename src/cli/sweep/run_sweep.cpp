#include "cli/sweep/run_sweep.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "base/mutex.h"
#include "cli/options/option_effects.h"
#include "cli/output/progress_bar.h"
#include "cli/signals/interrupt.h"

namespace penstock {
namespace {

// What one combination gave.
struct Outcome {
  SweptSchedule swept;
  Status prices_read;  // whether the schedule reads the prices that all combinations have
};

Result<Simulated> SimulateCombination(const SweepPlan& plan, std::size_t combination,
                                      Status& prices_read) {
  const ScheduleOptions& options = plan.options();
  const Candidate candidate = plan.At(combination);
  PENSTOCK_TRY_STATUS(RefuseOwnUnread(candidate, options));
  PENSTOCK_TRY(ChosenSchedule chosen, options.BuildOne(candidate));
  if (chosen.jitter) chosen.jitter->threads = 1;  // the combinations occupy the cores
  PENSTOCK_TRY(Simulated simulated, SimulateOne(std::move(chosen), false));
  prices_read = RefuseUnreadPrices(options, {&simulated.chosen, 1});
  simulated.chosen.schedule.lanes.clear();
  simulated.chosen.schedule.lanes.shrink_to_fit();
  simulated.chosen.costs.stages = {};
  simulated.chosen.costs.by_slice = {};
  return simulated;
}

bool IsRefusal(const Error& error) {
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kInfeasible ||
         error.code == ErrorCode::kNotFound;
}

// Threads that take one combination after the other.
class Sweep {
 public:
  explicit Sweep(const SweepPlan& plan) : plan_(plan), outcomes_(plan.size()) {}

  Result<std::vector<Outcome>> Run() {
    const std::atomic<bool>& interrupted = CatchInterrupt();
    const std::size_t threads =
        std::min<std::size_t>(plan_.size(), std::max(1U, std::thread::hardware_concurrency()));
    ProgressBar bar(plan_.size());
    bar.Show(0);
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < threads; ++i) workers.emplace_back([this] { Work(); });
    Watch(threads, interrupted, bar);
    for (std::thread& worker : workers) worker.join();
    ReleaseInterrupt();
    if (exception_) std::rethrow_exception(exception_);
    if (failure_) return tl::unexpected(*failure_);
    if (done_ < plan_.size()) {
      return MakeError(ErrorCode::kUnavailable,
                       "the sweep was stopped on request after {} of {} combinations", done_.load(),
                       plan_.size());
    }
    return std::move(outcomes_);
  }

 private:
  void Work() {
    pthread_setname_np(pthread_self(), "sweep");
    try {
      while (!stop_) {
        const std::size_t combination = next_++;
        if (combination >= plan_.size()) break;
        Fill(combination);
        ++done_;
      }
    } catch (...) {
      const MutexLock lock(mutex_);
      exception_ = std::current_exception();
      stop_ = true;
    }
    const MutexLock lock(mutex_);
    ++ended_;
    changed_.NotifyAll();
  }

  void Fill(std::size_t combination) {
    Outcome& outcome = outcomes_[combination];
    auto priced = SimulateCombination(plan_, combination, outcome.prices_read);
    if (priced) {
      outcome.swept.simulated = *std::move(priced);
      return;
    }
    const Error error =
        NameAsGiven(std::move(priced).error(), plan_.options().given_in, "schedule");
    if (IsRefusal(error)) {
      outcome.swept.skipped = error.line();
      return;
    }
    const MutexLock lock(mutex_);
    failure_ = error;
    stop_ = true;
  }

  // Shows the progress until the workers have ended.
  void Watch(std::size_t threads, const std::atomic<bool>& interrupted, ProgressBar& bar) {
    constexpr std::chrono::milliseconds kInterval{100};
    MutexLock lock(mutex_);
    while (ended_ < threads) {
      if (interrupted) stop_ = true;
      if (!changed_.WaitUntil(lock, std::chrono::steady_clock::now() + kInterval)) bar.Show(done_);
    }
  }

  const SweepPlan& plan_;
  std::vector<Outcome> outcomes_;  // each written by one worker
  std::atomic<std::size_t> next_{0}, done_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  std::size_t ended_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_;  // written under the mutex, read after the workers have ended
  std::exception_ptr exception_;
};

// Refuses options without an effect on any schedule: all combinations then refuse the same one.
Status RefuseWithoutEffect(const std::vector<Outcome>& outcomes) {
  const Error* refused = nullptr;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.swept.simulated) continue;
    if (outcome.prices_read) return {};
    const Error& error = outcome.prices_read.error();
    if (refused != nullptr && refused->line() != error.line()) return {};
    refused = &error;
  }
  return refused == nullptr ? Status() : tl::unexpected(*refused);
}

}  // namespace

Result<std::vector<SweptSchedule>> RunSweep(const SweepPlan& plan) {
  PENSTOCK_TRY(std::vector<Outcome> outcomes, Sweep(plan).Run());
  const Status status = RefuseWithoutEffect(outcomes);
  if (!status) {
    return tl::unexpected(NameAsGiven(status.error(), plan.options().given_in, "schedule"));
  }
  std::vector<SweptSchedule> swept;
  for (Outcome& outcome : outcomes) swept.push_back(std::move(outcome.swept));
  const bool any = std::any_of(swept.begin(), swept.end(), [](const SweptSchedule& each) {
    return each.simulated.has_value();
  });
  if (any) return swept;
  return InvalidArgument("no schedule takes any of the {} combinations; the first: {}",
                         swept.size(), swept.front().skipped);
}

}  // namespace penstock
