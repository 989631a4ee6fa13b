#include "base/system/own_time.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;
const OwnTimeLimit::Clock::time_point kStart{seconds(1000)};

TEST(OwnTimeLimit, CountsTheTimeOfAProcessThatLooks) {
  OwnTimeLimit limit(seconds(60), kStart);
  for (int second = 1; second < 60; ++second) {
    EXPECT_FALSE(limit.IsOver(kStart + seconds(second))) << second;
  }
  EXPECT_TRUE(limit.IsOver(kStart + seconds(60)));
}

TEST(OwnTimeLimit, CountsAStopAsOneLook) {
  for (const auto length : {milliseconds(100), milliseconds(2000), milliseconds(60'000)}) {
    for (const auto stop : {length, 3 * length, 1000 * length}) {
      OwnTimeLimit limit(length, kStart);
      const milliseconds look = length / 100;
      auto now = kStart + stop;
      EXPECT_FALSE(limit.IsOver(now)) << length.count();
      EXPECT_LE(limit.Elapsed(now),
                std::min<OwnTimeLimit::Clock::duration>(length / 4, seconds(1)));
      int looks = 0;
      while (!limit.IsOver(now += look)) ++looks;
      EXPECT_GE(looks, 70);  // the time before the stop counts no less than that after it
      EXPECT_LE(looks, 100);
    }
  }
}

TEST(OwnTimeLimit, TheNextLookIsWithinTheLimit) {
  OwnTimeLimit limit(milliseconds(2500), kStart);
  EXPECT_EQ(limit.NextLook(), kStart + milliseconds(625));
  for (int looks = 1; looks <= 4; ++looks) {
    EXPECT_EQ(limit.IsOver(limit.NextLook()), looks == 4);
  }
  EXPECT_EQ(limit.NextLook(), kStart + milliseconds(2500));
  limit.Restart(kStart + seconds(9));
  EXPECT_EQ(limit.NextLook(), kStart + milliseconds(9625));
}

TEST(OwnTimeLimit, AYearIsNoOverflow) {
  OwnTimeLimit limit(std::chrono::hours(24 * 365), kStart);
  EXPECT_EQ(limit.NextLook(), kStart + seconds(1));
  EXPECT_FALSE(limit.IsOver(kStart + seconds(5)));
}

}  // namespace
}  // namespace penstock
