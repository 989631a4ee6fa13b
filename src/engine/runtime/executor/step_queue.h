// StepQueue: lets the ranks of a run begin steps on request. RunSession uses it.
//
// The ranks' threads wait in Await for the next request. What was requested has ended on this
// process when all of them wait again. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>

#include "base/mutex.h"

namespace penstock {

// The error of a step that another process does not run.
inline constexpr std::string_view kSessionEnded = "another process has ended the session";

class StepQueue {
 public:
  // `ranks`: how many threads call Await.
  explicit StepQueue(int ranks) : ranks_(ranks) {}

  // Begins the next steps, at least one. Requires that no step runs.
  void Request(std::int64_t steps) {
    const MutexLock lock(mutex_);
    waiting_ = 0;
    requested_ += steps;
    begin_.NotifyAll();
  }
  // Waits for the end of these steps, or of the run, until `deadline`. Returns whether either is
  // over.
  [[nodiscard]] bool WaitUntil(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!closed_ && waiting_ < ranks_) {
      if (!end_.WaitUntil(lock, deadline)) break;
    }
    return closed_ || waiting_ == ranks_;
  }
  // Ends every present and later wait: no further step begins.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    begin_.NotifyAll();
    end_.NotifyAll();
  }
  bool closed() const {
    const MutexLock lock(mutex_);
    return closed_;
  }

  // Called on a rank's thread after it has ended all steps before `step`, which counts from 0.
  // Returns false once the queue is closed.
  [[nodiscard]] bool Await(std::int64_t step) {
    MutexLock lock(mutex_);
    if (requested_ <= step && ++waiting_ == ranks_) end_.NotifyAll();
    lock.Unlock();
    YieldUntilRequested(step);
    lock.Lock();
    while (!closed_ && requested_ <= step) begin_.Wait(lock);
    return !closed_;
  }
  // Whether all ranks wait for a request.
  bool idle() const {
    const MutexLock lock(mutex_);
    return waiting_ == ranks_;
  }

 private:
  // Between short steps, waking a thread that sleeps would take longer than what the caller does.
  // Yielding leaves the core to the caller.
  void YieldUntilRequested(std::int64_t step) const {
    constexpr std::chrono::microseconds kPatience{1000};
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (requested_.load(std::memory_order_relaxed) <= step &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }

  const int ranks_;
  mutable Mutex mutex_;
  CondVar begin_, end_;
  std::atomic<std::int64_t> requested_ = 0;      // steps; changes while mutex_ is locked
  int waiting_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // ranks in Await
  bool closed_ PENSTOCK_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
