// Signals that request a stop: one that is sent twice counts once.
//
// `timeout` signals its child and then the child's group, a terminal and a batch system may both
// signal the same process. So signals within a second of the first one repeat it.
#pragma once

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace penstock {

enum class StopSignal { kFirst, kRepeat, kSecond };

// Safe in a signal handler.
class StopSignals {
 public:
  // Classifies a signal that arrives at `now`, in nanoseconds of a clock that is never 0.
  StopSignal Classify(std::int64_t now) {
    constexpr std::int64_t kRepeats = 1'000'000'000;  // ns
    static_assert(std::atomic<std::int64_t>::is_always_lock_free);
    std::int64_t first = 0;
    if (first_.compare_exchange_strong(first, now)) return StopSignal::kFirst;
    return now - first < kRepeats ? StopSignal::kRepeat : StopSignal::kSecond;
  }
  StopSignal Classify() {
    constexpr std::int64_t kSecond = 1'000'000'000;  // ns
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return Classify(now.tv_sec * kSecond + now.tv_nsec + 1);
  }

 private:
  std::atomic<std::int64_t> first_{0};
};

// Ends the process by the signal whose handler calls it, after the handler returns.
inline void EndBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace penstock
