#include "base/text/parameter_name.h"

#include <gtest/gtest.h>

#include <array>

namespace penstock {
namespace {

constexpr std::array<std::string_view, 2> kNames = {"chunks", "memory_limit"};

TEST(ParameterName, IsFoundInAnyClauseWithItsValue) {
  EXPECT_EQ(FindParameter("chunks 3: must be 2", kNames), "chunks");
  const std::string_view message = "schedule zbv: memory_limit 3GiB: too small";
  const auto name = FindParameter(message, kNames);
  ASSERT_EQ(name, "memory_limit");
  EXPECT_EQ(name->data(), message.data() + message.find("memory_limit"));
}

TEST(ParameterName, IsNotFoundInOtherText) {
  for (const char* message : {"", "chunks", "chunks 3", "chunks: must be 2", "a chunks 3: no",
                              "no chunks 3 x: no", "slices 3: no", "4 chunks: no"}) {
    EXPECT_EQ(FindParameter(message, kNames), std::nullopt) << message;
  }
}

}  // namespace
}  // namespace penstock
