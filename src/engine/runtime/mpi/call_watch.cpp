#include "runtime/mpi/call_watch.h"

#include <utility>

namespace penstock {

CallWatch::CallWatch(std::chrono::duration<double> limit, std::function<void()> on_stuck) {
  if (!on_stuck) return;
  thread_ = std::thread(
      [this, limit, on_stuck = std::move(on_stuck)] { Look(limit / (kPeriods - 1), on_stuck); });
}

CallWatch::~CallWatch() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool CallWatch::BeginPeriod() {
  const unsigned next = period_.load(std::memory_order_relaxed) + 1;
  if (begun_[next % kPeriods].load(std::memory_order_relaxed) != 0) return false;
  period_.store(next, std::memory_order_relaxed);
  return true;
}

// A process that was stopped for many periods begins one of them, because it did not look.
void CallWatch::Look(std::chrono::duration<double> period, const std::function<void()>& on_stuck) {
  using Clock = std::chrono::steady_clock;
  const auto length = std::chrono::ceil<Clock::duration>(period);
  MutexLock lock(mutex_);
  while (!is_ending_) {
    const Clock::time_point end = Clock::now() + length;
    while (!is_ending_ && changed_.WaitUntil(lock, end)) {
    }
    if (!is_ending_ && !BeginPeriod()) return on_stuck();
  }
}

}  // namespace penstock
