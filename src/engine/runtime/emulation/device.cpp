#include "runtime/emulation/device.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// By default, the kernel may end a thread's sleeps 50 us late to batch wake-ups.
void AskForExactSleeps() {
  thread_local const bool asked = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL) == 0;
  static_cast<void>(asked);
}

}  // namespace

std::int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

void EmulatedDevice::StartAt(std::int64_t origin) {
  if (clock_ == 0) clock_ = origin;
}

void EmulatedDevice::NotBefore(std::int64_t time) { not_before_ = std::max(not_before_, time); }

std::int64_t EmulatedDevice::NextStart() const { return std::max(clock_, not_before_); }

bool EmulatedDevice::AwaitStart() { return SleepUntil(NextStart()); }

std::int64_t EmulatedDevice::Run(std::int64_t duration) {
  const std::int64_t start = NextStart();
  const std::int64_t end = start + duration;
  runs_.push_back({start, end});
  clock_ = end;
  not_before_ = 0;
  SleepUntil(end);
  worst_lateness_ = std::max(worst_lateness_, NowNanoseconds() - end);
  return end;
}

EmulatedDevice::Interval EmulatedDevice::Carry(Link link, std::int64_t earliest,
                                               std::int64_t duration) {
  const std::int64_t start = std::max(earliest, link_free_[link]);
  link_free_[link] = start + duration;
  return {start, start + duration};
}

double EmulatedDevice::Peak() const {
  std::vector<Change> changes = changes_;
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time != b.time ? a.time < b.time : a.amount < 0 && b.amount >= 0;
  });
  double total = 0;
  double peak = 0;
  for (const Change& change : changes) {
    total += change.amount;
    peak = std::max(peak, total);
  }
  return peak;
}

void EmulatedDevice::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.NotifyAll();
}

bool EmulatedDevice::SleepUntil(std::int64_t time) {
  if (NowNanoseconds() >= time) return !stop_;
  AskForExactSleeps();
  MutexLock lock(mutex_);
  const Clock::time_point deadline{std::chrono::nanoseconds(time)};
  while (!stop_ && stopped_.WaitUntil(lock, deadline)) {
  }
  return !stop_;
}

}  // namespace penstock
