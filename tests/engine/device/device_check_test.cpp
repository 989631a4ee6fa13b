// `penstock check-device` passes on the test device, and says what fails.
#include "train/check/device_check.h"

#include <gtest/gtest.h>

#include "tests/engine/device/device.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

TEST(DeviceCheck, PassesOnADeviceThatTrainsRight) {
  TakeReport();
  int checks = 0;
  const Status status = CheckDevice("test_device", [&](const DeviceCheck& check) {
    ++checks;
    EXPECT_TRUE(check.passed()) << check.name << ": " << check.difference << " " << check.error;
  });
  ASSERT_TRUE(status) << status.error().line();
  EXPECT_GE(checks, 24);
  EXPECT_TRUE(TakeReport().races.empty());
}

TEST(DeviceCheck, NamesADeviceThatIsNotThere) {
  EXPECT_TRUE(Refused(CheckDevice("abacus", [](const DeviceCheck&) { FAIL(); }), "abacus"));
}

}  // namespace
}  // namespace penstock::testing
