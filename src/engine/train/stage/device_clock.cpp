#include "train/stage/device_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cmath>

namespace penstock {

c10::Stream DeviceClock::Current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

void DeviceClock::Begin(std::size_t marks) {
  while (marks_.size() < marks) marks_.push_back({NewEvent()});
  for (Marked& mark : marks_) mark.set = false;
}

void DeviceClock::Mark(std::size_t mark) {
  marks_[mark].event.record(Current());
  marks_[mark].set = true;
}

void DeviceClock::End() {
  end_.record(Current());
  end_.synchronize();
  end_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                std::chrono::steady_clock::now().time_since_epoch())
                .count();
}

std::int64_t DeviceClock::At(std::size_t mark) const {
  if (!marks_[mark].set) return 0;
  constexpr double kNsPerMs = 1e6;
  return end_ns_ - std::llround(marks_[mark].event.elapsedTime(end_) * kNsPerMs);
}

}  // namespace penstock
