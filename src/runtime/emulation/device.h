// EmulatedDevice: one rank's device, its clock, its links and its memory. Private to the emulation.
//
// Units: nanoseconds of the steady clock; memory in units of cost memory.
// Threads: all from the rank's thread, but Stop, and what is read after the run.
#pragma once

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

  // Times from here on; the first call alone says so.
  void StartAt(std::int64_t origin);

  // The next action may not start before. Accumulates until Run.
  void NotBefore(std::int64_t time);
  // Sleeps until the next action may start. False after Stop.
  [[nodiscard]] bool AwaitStart();
  std::int64_t NextStart() const;
  // When the device is through with what it has been given.
  std::int64_t clock() const { return clock_; }
  // Runs for `duration` and sleeps until its end, which is returned. Returns early after Stop.
  std::int64_t Run(std::int64_t duration);

  // Starts a transfer when the link is free, not before `earliest`.
  Interval Carry(Link link, std::int64_t earliest, std::int64_t duration);

  // Memory taken (given back where below 0) at a time, which need not be in order.
  void Hold(std::int64_t time, double amount) { changes_.push_back({time, amount}); }
  // The most held at one time. What is given back at one instant goes before what is taken.
  double Peak() const;

  // When each Run was due, in order.
  const std::vector<Interval>& runs() const { return runs_; }

  // Ends every sleep, now and later. Any thread.
  void Stop();
  // The most that Run returned late.
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

// Of the steady clock.
std::int64_t NowNanoseconds();

}  // namespace penstock
