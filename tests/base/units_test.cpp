#include "base/units.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Units, FormatsBytesAndSeconds) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(3670016), "3.50 MiB");
  EXPECT_EQ(FormatSeconds(0.0124), "12.4 ms");
  EXPECT_EQ(FormatSeconds(125), "2 m 05 s");
}

TEST(Units, ParsesBytesAndRefusesTheRest) {
  EXPECT_EQ(*ParseBytes("16GiB"), std::int64_t{16} << 30);
  EXPECT_EQ(*ParseBytes("1.5 KiB"), 1536);
  for (const char* bad : {"", "GiB", "-1 B", "3", "3 GB more", "1e30 TB"}) {
    const auto result = ParseBytes(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(Units, SizesWithoutBytesGetASuggestion) {
  for (const auto& [text, meant] :
       {std::pair("8G", "8GiB"), {"1.5 k", "1.5 KiB"}, {"80m", "80MiB"}}) {
    EXPECT_TRUE(ParseBytes(text).error().message.ends_with(fmt::format(" ({})", meant))) << text;
  }
  for (const char* const text : {"G", "xG", "8Q", "-8G"}) {
    EXPECT_TRUE(ParseBytes(text).error().message.ends_with("or GB")) << text;
  }
}

TEST(Units, ParsesSecondsAndRefusesTheRest) {
  EXPECT_EQ(*ParseSeconds("2s"), 2);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5 ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(*ParseSeconds("20us"), 20e-6);
  for (const char* bad : {"", "ms", "-1 s", "3", "3 s more", "nan s", "1e30 s"}) {
    const auto result = ParseSeconds(bad);
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace penstock
