// OwnTimeLimit: a limit on a wait that counts only the time in which this process ran.
//
// A process that was stopped (SIGSTOP, a suspended machine, a frozen container) has not looked, and
// the processes that it waits for were often stopped with it. So the owner looks several times, and
// the time between two looks counts at most as much as between looks of a process that runs.
#pragma once

#include <algorithm>
#include <chrono>

namespace penstock {

class OwnTimeLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OwnTimeLimit(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit),
        longest_(std::clamp<Clock::duration>(limit / 4, std::chrono::milliseconds(1),
                                             std::chrono::seconds(1))),
        last_(now) {}

  void Restart(Clock::time_point now = Clock::now()) {
    elapsed_ = {};
    last_ = now;
  }

  // Looks. Returns the time that counts since the start.
  Clock::duration Elapsed(Clock::time_point now = Clock::now()) {
    elapsed_ += std::clamp<Clock::duration>(now - last_, Clock::duration(0), longest_);
    last_ = now;
    return elapsed_;
  }
  bool IsOver(Clock::time_point now = Clock::now()) { return Elapsed(now) >= limit_; }

  // Returns the latest time of the next look.
  Clock::time_point NextLook() const { return last_ + std::min(longest_, limit_ - elapsed_); }

  Clock::duration limit() const { return limit_; }

 private:
  Clock::duration limit_;
  Clock::duration longest_;  // that counts between two looks
  Clock::duration elapsed_{};
  Clock::time_point last_;
};

}  // namespace penstock
