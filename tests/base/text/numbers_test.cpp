#include "base/text/numbers.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

TEST(ParseInt, TakesDecimalNumbersAndNothingElse) {
  EXPECT_EQ(ParseInt("0"), 0);
  EXPECT_EQ(ParseInt("10"), 10);
  EXPECT_EQ(ParseInt("-3"), -3);
  EXPECT_EQ(ParseInt("2147483647"), std::numeric_limits<int>::max());
  for (const char* text : {"", "-", "010", "-010", "00", "0x10", "+1", " 1", "1 ", "1.0", "1e3",
                           "2147483648", "99999999999999999999", "four"}) {
    EXPECT_FALSE(ParseInt(text)) << text;
  }
}

TEST(ParseNumber, TakesFiniteNumbersAndNothingElse) {
  EXPECT_EQ(ParseNumber("0.25"), 0.25);
  EXPECT_EQ(ParseNumber("-1e-3"), -1e-3);
  for (const char* text : {"", "-", "nan", "inf", "-inf", "1e999", "0x1", "1,5", " 1", "1 ", "x"}) {
    EXPECT_FALSE(ParseNumber(text)) << text;
  }
}

}  // namespace
}  // namespace penstock
