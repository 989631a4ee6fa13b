#include "scenario/evidence/evidence.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(Evidence, TextNamesTablesAndDevicesOnce) {
  Evidence evidence;
  evidence.implementation = "megatron";
  evidence.rows = {{.table = "a", .implementation = "megatron", .device = "h100", .rows = 1},
                   {.table = "b", .implementation = "megatron", .device = "h100", .rows = 3},
                   {.table = "a", .implementation = "megatron", .device = "h100", .rows = 22}};
  EXPECT_TRUE(evidence.Text().ends_with(" on h100: 23 of a, 3 of b")) << evidence.Text();
}

}  // namespace
}  // namespace penstock
