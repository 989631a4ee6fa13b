#include "base/text/wrap.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Wrap, LinesEndAtTheWidthOrBefore) {
  EXPECT_EQ(Wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(Wrap("one two three", 6), "one\ntwo\nthree");
  EXPECT_EQ(Wrap("one two three", 80), "one two three");
  EXPECT_EQ(Wrap("", 5), "");
}

TEST(Wrap, FurtherLinesAreIndented) { EXPECT_EQ(Wrap("one two three", 9, 2), "one two\n  three"); }

TEST(Wrap, ALongWordHasALine) { EXPECT_EQ(Wrap("a longer b", 3), "a\nlonger\nb"); }

TEST(Wrap, CountsCharacters) { EXPECT_EQ(Wrap("\u00b5s \u00b5s", 5), "\u00b5s \u00b5s"); }

}  // namespace
}  // namespace penstock
