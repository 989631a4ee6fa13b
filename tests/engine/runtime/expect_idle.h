// Checks that a thread waits without using a core.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>

namespace penstock {

// Expects that the CPU time of `waiter` stops growing once `waits` is set. The time of a polling
// thread would not.
inline void ExpectIdle(std::thread& waiter, const std::atomic<bool>& waits) {
  clockid_t clock{};
  ASSERT_EQ(pthread_getcpuclockid(waiter.native_handle(), &clock), 0);
  const auto used = [&] {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
  };
  // Waits for this many consecutive looks without a change, at least a millisecond apart.
  constexpr int kLooks = 50;
  constexpr int kMostLooks = 20000;
  int unchanged = 0;
  for (int looks = 0; unchanged < kLooks && looks < kMostLooks; ++looks) {
    const std::int64_t before = used();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    unchanged = waits.load() && used() == before ? unchanged + 1 : 0;
  }
  EXPECT_EQ(unchanged, kLooks);
}

}  // namespace penstock
