#include "base/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/results.h"

namespace penstock {
namespace {

TEST(Units, FormatsBytesAndSeconds) {
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(3670016), "3.50 MiB");
  EXPECT_EQ(FormatSeconds(0.0124), "12.4 ms");
  EXPECT_EQ(FormatSeconds(125), "2 m 05 s");
}

TEST(Units, FormatsTheWholeRange) {
  const std::pair<double, const char*> times[] = {
      {0, "0 ns"},          {-0.0, "0 ns"},       {1e-17, "0 ns"},       {-1e-17, "0 ns"},
      {2.5e-10, "0.25 ns"}, {8.5e-7, "850 ns"},   {9.9996e-7, "1.0 us"}, {9.9996e-4, "1.0 ms"},
      {0.99996, "1.0 s"},   {-1.392, "-1.4 s"},   {-0.0124, "-12.4 ms"}, {59.96, "1 m 00 s"},
      {-125, "-2 m 05 s"},  {3599.6, "1 h 00 m"}, {-7260, "-2 h 01 m"},  {1e300, "1e+300 s"},
      {INFINITY, "-"},      {NAN, "-"},
  };
  for (const auto& [seconds, text] : times) EXPECT_EQ(FormatSeconds(seconds), text);
  const std::pair<std::int64_t, const char*> sizes[] = {
      {0, "0 B"},
      {-1, "-1 B"},
      {1023, "1023 B"},
      {-1024, "-1.00 KiB"},
      {1048575, "1.00 MiB"},
      {10480, "10.2 KiB"},
      {-(std::int64_t{3} << 29), "-1.50 GiB"},
      {std::numeric_limits<std::int64_t>::min(), "-8388608.0 TiB"},
  };
  for (const auto& [bytes, text] : sizes) EXPECT_EQ(FormatBytes(bytes), text);
}

TEST(Units, ParsesBytesAndRefusesTheRest) {
  EXPECT_EQ(*ParseBytes("16GiB"), std::int64_t{16} << 30);
  EXPECT_EQ(*ParseBytes("1.5 KiB"), 1536);
  for (const char* bad : {"", "GiB", "-1 B", "3", "3 GB more", "1e30 TB"}) {
    EXPECT_TRUE(Refused(ParseBytes(bad), "", ErrorCode::kInvalidArgument)) << bad;
  }
}

TEST(Units, SizesWithoutBytesGetASuggestion) {
  for (const auto& [text, meant] :
       {std::pair("8G", "8GiB"), {"1.5 k", "1.5 KiB"}, {"80m", "80MiB"}}) {
    EXPECT_TRUE(ParseBytes(text).error().line().ends_with(fmt::format(" ({})", meant))) << text;
  }
  for (const char* const text : {"G", "xG", "8Q", "-8G"}) {
    EXPECT_TRUE(ParseBytes(text).error().line().ends_with("or GB")) << text;
  }
}

TEST(Units, ParsesSecondsAndRefusesTheRest) {
  EXPECT_EQ(*ParseSeconds("2s"), 2);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5 ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(*ParseSeconds("20us"), 20e-6);
  EXPECT_EQ(*ParseSeconds("10 min"), 600);
  EXPECT_EQ(*ParseSeconds("50000h"), 1.8e8);
  for (const char* bad : {"", "ms", "-1 s", "3", "3 s more", "nan s", "1e30 s"}) {
    EXPECT_TRUE(Refused(ParseSeconds(bad), "", ErrorCode::kInvalidArgument)) << bad;
  }
}

TEST(Units, ParsesBandwidthsAndRefusesTheRest) {
  EXPECT_EQ(*ParseBandwidth("10Gbit/s"), 1.25e9);
  EXPECT_EQ(*ParseBandwidth("100 Mbit/s"), 1.25e7);
  EXPECT_EQ(*ParseBandwidth("12.5GB/s"), 1.25e10);
  EXPECT_EQ(*ParseBandwidth("3e9"), 3e9);
  for (const char* bad : {"", "GB/s", "-1 GB/s", "10Gb", "0", "nan", "1e30 GB/s", "1GB/s more"}) {
    EXPECT_TRUE(Refused(ParseBandwidth(bad), "", ErrorCode::kInvalidArgument)) << bad;
  }
}

}  // namespace
}  // namespace penstock
