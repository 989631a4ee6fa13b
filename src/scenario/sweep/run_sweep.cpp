#include "scenario/sweep/run_sweep.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "base/mutex.h"
#include "scenario/price/next_to_file.h"
#include "scenario/price/unused_fields.h"

namespace penstock {
namespace {

// What one combination gave.
struct Outcome {
  SweptSchedule swept;
  Status prices_read;  // whether the schedule reads the prices that all combinations have
};

Result<Simulated> SimulateCombination(const SweepPlan& plan, std::size_t combination,
                                      const std::optional<ReferenceFile>& reference,
                                      Status& prices_read) {
  const Scenario& scenario = plan.scenario();
  const Candidate candidate = plan.At(combination);
  PENSTOCK_TRY_STATUS(RefuseOwnUnused(candidate, scenario, kSweepPurpose));
  PENSTOCK_TRY(PricedSchedule chosen,
               reference ? BuildNextTo(*reference, scenario, candidate, kSweepPurpose)
                         : BuildOne(scenario, candidate, kSweepPurpose));
  if (chosen.jitter) chosen.jitter->threads = 1;  // the combinations occupy the cores
  PENSTOCK_TRY(Simulated simulated, SimulateOne(std::move(chosen), false));
  prices_read = RefuseUnusedPrices(scenario, kSweepPurpose, {&simulated.chosen, 1});
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
  Sweep(const SweepPlan& plan, const SweepWatch& watch)
      : plan_(plan), watch_(watch), outcomes_(plan.size()) {}

  Result<std::vector<Outcome>> Run() {
    Scenario scenario = plan_.scenario();
    scenario.schedules = plan_.schedules();
    PENSTOCK_TRY(reference_, BuildReference(scenario, kSweepPurpose));
    const std::size_t threads =
        std::min<std::size_t>(plan_.size(), std::max(1U, std::thread::hardware_concurrency()));
    std::vector<std::thread> workers;
    for (std::size_t i = 0; i < threads; ++i) workers.emplace_back([this] { Work(); });
    Watch(threads);
    for (std::thread& worker : workers) worker.join();
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
    auto priced = SimulateCombination(plan_, combination, reference_, outcome.prices_read);
    if (priced) {
      outcome.swept.simulated = *std::move(priced);
      return;
    }
    Error error = std::move(priced).error();
    if (IsRefusal(error)) {
      outcome.swept.skipped = Spelled(std::move(error)).line();
      return;
    }
    const MutexLock lock(mutex_);
    failure_ = error;
    stop_ = true;
  }

  // Shows the progress until the workers have ended.
  void Watch(std::size_t threads) {
    constexpr std::chrono::milliseconds kInterval{100};
    MutexLock lock(mutex_);
    while (ended_ < threads) {
      if (watch_.stop != nullptr && *watch_.stop) stop_ = true;
      if (changed_.WaitUntil(lock, std::chrono::steady_clock::now() + kInterval)) continue;
      if (watch_.progress) watch_.progress(done_);
    }
  }

  Error Spelled(Error error) const {
    if (!watch_.spelling) return error;
    return Spell(std::move(error), plan_.scenario(), watch_.spelling, "schedule");
  }

  const SweepPlan& plan_;
  const SweepWatch& watch_;
  std::optional<ReferenceFile> reference_;
  std::vector<Outcome> outcomes_;  // each written by one worker
  std::atomic<std::size_t> next_{0}, done_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  CondVar changed_;
  std::size_t ended_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  std::optional<Error> failure_;  // written under the mutex, read after the workers have ended
  std::exception_ptr exception_;
};

// Refuses fields without an effect on any schedule: all combinations then refuse the same one.
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

Result<std::vector<SweptSchedule>> RunSweep(const SweepPlan& plan, const SweepWatch& watch) {
  PENSTOCK_TRY(std::vector<Outcome> outcomes, Sweep(plan, watch).Run());
  PENSTOCK_TRY_STATUS(RefuseWithoutEffect(outcomes));
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
