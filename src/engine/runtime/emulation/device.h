// EmulatedDevice: the device of one rank, with its clock, links and memory. Private to the
// emulation.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace penstock {

class EmulatedDevice {
 public:
  struct Interval {
    std::int64_t start = 0, end = 0;
  };
  enum Link { kOffloads, kReloads, kCollectives };

  // Sets the origin of the clock. Only the first call has an effect.
  void StartAt(std::int64_t origin);

  // Delays the start of the next action to `time` at the earliest. Accumulates until Run.
  void NotBefore(std::int64_t time);
  // Sleeps until the next action may start. False after Stop.
  [[nodiscard]] bool AwaitStart();
  std::int64_t NextStart() const;
  // The end of the last action so far.
  std::int64_t clock() const { return clock_; }
  // Runs for `duration`, sleeps until the end, and returns it. Returns early after Stop.
  std::int64_t Run(std::int64_t duration);

  // Starts a transfer when the link is free, at `earliest` or later.
  Interval Carry(Link link, std::int64_t earliest, std::int64_t duration);

  // When the links have carried all transfers so far.
  std::int64_t LastTransferEnd() const { return *std::ranges::max_element(link_free_); }

  // Allocates memory (frees it if negative) at a time. Calls need not be in order of time.
  void Allocate(std::int64_t time, double amount) { changes_.push_back({time, amount}); }
  // The peak. At equal times, memory is freed before it is allocated.
  double Peak() const;

  // The due interval of each Run, in order.
  const std::vector<Interval>& runs() const { return runs_; }

  // Ends every sleep, now and later. Any thread.
  void Stop();
  // The maximum lateness at which a Run returned.
  std::int64_t worst_lateness() const { return worst_lateness_; }

 private:
  struct Change {
    std::int64_t time = 0;
    double amount = 0;
  };

  bool SleepUntil(std::int64_t time);

  std::int64_t clock_ = 0;
  std::int64_t not_before_ = 0;
  std::int64_t link_free_[3] = {};
  std::int64_t worst_lateness_ = 0;
  std::vector<Change> changes_;
  std::vector<Interval> runs_;

  Mutex mutex_;
  CondVar stopped_;
  std::atomic<bool> stop_{false};  // set while mutex_ is locked, so that no sleep misses it
};

// The time of the steady clock.
std::int64_t NowNanoseconds();

}  // namespace penstock
