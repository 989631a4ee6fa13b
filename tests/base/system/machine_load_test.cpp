#include "base/system/machine_load.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(MachineLoadTest, OnlyALoadAboveTheCoresIsNamed) {
  EXPECT_EQ(BusyText(0, 2), "");
  EXPECT_EQ(BusyText(2, 2), "");
  EXPECT_EQ(BusyText(5.21, 2), "the machine was busy before the run: load 5.2 on 2 cores");
  EXPECT_EQ(BusyText(1.5, 1), "the machine was busy before the run: load 1.5 on 1 core");
}

}  // namespace
}  // namespace penstock
