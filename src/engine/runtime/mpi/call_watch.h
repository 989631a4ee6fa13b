// CallWatch: notices a call of MPI that does not return.
//
// Open MPI reads from its connections on whatever thread calls it, and such a read may wait
// forever, for example for the rest of what a stranger has sent to a port. Then no thread that
// calls MPI is sure to look at the time, so a thread that never does looks.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace penstock {

class CallWatch {
 public:
  // Calls `on_stuck` on a thread of its own once a call has been in flight for `limit`, not
  // counting time in which this process did not run. There is no thread if it is null.
  CallWatch(std::chrono::duration<double> limit, std::function<void()> on_stuck);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // A call in flight, on any thread.
  class Call {
   public:
    explicit Call(CallWatch& watch)
        : begun_(watch.begun_[watch.period_.load(std::memory_order_relaxed) % kPeriods]) {
      begun_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Call() { begun_.fetch_sub(1, std::memory_order_relaxed); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    std::atomic<int>& begun_;
  };

  // Begins the next period; the limit is kPeriods - 1 periods. Returns false if a call of so many
  // periods before is still in flight. For the thread and for tests.
  bool BeginPeriod();

  static constexpr unsigned kPeriods = 16;

 private:
  void Look(std::chrono::duration<double> period, const std::function<void()>& on_stuck);

  // Calls in flight, by the period in which they have begun.
  std::array<std::atomic<int>, kPeriods> begun_{};
  std::atomic<unsigned> period_{0};
  Mutex mutex_;
  CondVar changed_;
  bool is_ending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
