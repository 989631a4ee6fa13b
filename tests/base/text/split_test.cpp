#include "base/text/split.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Parts = std::vector<std::string>;

TEST(Split, HasOnePartMoreThanSeparators) {
  EXPECT_EQ(SplitAt("a,bc,d", ','), (Parts{"a", "bc", "d"}));
  EXPECT_EQ(SplitAt("h100", '+'), (Parts{"h100"}));
  EXPECT_EQ(SplitAt("", ','), (Parts{""}));
  EXPECT_EQ(SplitAt(",a,", ','), (Parts{"", "a", ""}));
}

}  // namespace
}  // namespace penstock
