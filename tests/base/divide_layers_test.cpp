// Layers are divided the same way for runs and for prices.
#include "base/divide_layers.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Counts = std::vector<std::int64_t>;

TEST(DivideLayers, IsEvenWithLongerStagesFirst) {
  EXPECT_EQ(DivideLayers(7, 3), Counts({3, 2, 2}));
  EXPECT_EQ(DivideLayers(6, 3), Counts({2, 2, 2}));
  EXPECT_EQ(DivideLayers(7, 3, Counts{1, 5, 1}), Counts({1, 5, 1}));
}

TEST(DivideLayers, RefusesStagesWithoutLayersAndOtherSums) {
  for (const auto& [layers, stages, counts, part] :
       {std::tuple(3, 4, Counts{}, "3 layers cannot fill 4 stages"),
        std::tuple(3, 0, Counts{}, "at least 1 stage"), std::tuple(4, 2, Counts{4, 0}, "[4, 0]"),
        std::tuple(4, 2, Counts{1, 2}, "add up to 4"),
        std::tuple(4, 2, Counts{1, 1, 2}, "2 numbers")}) {
    const auto divided = DivideLayers(layers, stages, counts);
    ASSERT_FALSE(divided);
    EXPECT_NE(divided.error().line().find(part), std::string::npos) << divided.error().line();
  }
}

}  // namespace
}  // namespace penstock
