#include "base/text/quote.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Quote, PrintableTextStaysAsItIs) {
  EXPECT_EQ(Quote(""), "''");
  EXPECT_EQ(Quote("1f1b"), "'1f1b'");
  EXPECT_EQ(Quote("r\xc3\xa9seau \xe2\x82\xac \xf0\x9f\x98\x80"),
            "'r\xc3\xa9seau \xe2\x82\xac \xf0\x9f\x98\x80'");
}

TEST(Quote, EscapesControlCharactersAndInvalidBytes) {
  EXPECT_EQ(Quote("a\nb\tc\rd"), R"('a\nb\tc\rd')");
  EXPECT_EQ(Quote(std::string_view("\x1b[2J\0\x7f", 6)), R"('\x1b[2J\x00\x7f')");
  EXPECT_EQ(Quote("\xc2\x9b"), R"('\xc2\x9b')");          // CSI in one character
  EXPECT_EQ(Quote("\xff\xc3("), R"('\xff\xc3(')");        // no lead byte, no continuation
  EXPECT_EQ(Quote("\xed\xa0\x80"), R"('\xed\xa0\x80')");  // a surrogate
  EXPECT_EQ(Quote("\xe2\x82"), R"('\xe2\x82')");          // truncated
  EXPECT_EQ(Quote("\xf5\x80\x80\x80"), R"('\xf5\x80\x80\x80')");
}

TEST(Quote, TruncatesLongTextBetweenCharacters) {
  EXPECT_EQ(Quote(std::string(60, 'a')), fmt::format("'{}'", std::string(60, 'a')));
  EXPECT_EQ(Quote(std::string(100000, 'a')), fmt::format("'{}...'", std::string(60, 'a')));
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  EXPECT_EQ(Quote(euros), fmt::format("'{}...'", euros.substr(0, 180)));
}

TEST(Printable, KeepsItsLength) {
  EXPECT_EQ(Printable(std::string(1000, 'a')), std::string(1000, 'a'));
  EXPECT_EQ(Printable("line 1\nline 2"), R"(line 1\nline 2)");
}

}  // namespace
}  // namespace penstock
