#include "base/system/repeated_signal.h"

#include <gtest/gtest.h>

#include <utility>

namespace penstock {
namespace {

TEST(StopSignals, CountsARepeatWithinASecondAsOne) {
  using enum StopSignal;
  constexpr std::int64_t kMs = 1'000'000;
  StopSignals signals;
  // Also when the repeats follow each other: only the first one counts.
  for (const auto& [ms, expected] :
       {std::pair(1, kFirst), std::pair(1, kRepeat), std::pair(2, kRepeat), std::pair(600, kRepeat),
        std::pair(1000, kRepeat), std::pair(1001, kSecond), std::pair(1002, kSecond),
        std::pair(90'000, kSecond)}) {
    EXPECT_EQ(signals.Classify(ms * kMs), expected) << ms;
  }
}

TEST(StopSignals, UsesAClockThatRuns) {
  StopSignals signals;
  EXPECT_EQ(signals.Classify(), StopSignal::kFirst);
  EXPECT_NE(signals.Classify(), StopSignal::kFirst);
}

// As `timeout` and a batch system send them, in one call.
TEST(StopSignals, EndsTheProcessByTheSecond) {
  static StopSignals signals;
  const auto handler = [](int signal) {
    if (signals.Classify() == StopSignal::kSecond) EndBySignal(signal);
  };
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, handler);
        std::signal(SIGINT, handler);
        for (const int signal : {SIGTERM, SIGINT, SIGTERM}) std::raise(signal);
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_EXIT(
      {
        std::signal(SIGTERM, handler);
        static_cast<void>(signals.Classify(1));  // long ago
        std::raise(SIGTERM);
        std::_Exit(7);
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace penstock
