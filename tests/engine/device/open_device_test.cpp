// Names of devices, and the errors about devices that are not there.
#include <gtest/gtest.h>

#include "graph/device/device_queue.h"
#include "tests/engine/device/device.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

std::string ErrorOf(const char* name) { return LineOf(OpenDevice(name)); }

TEST(Devices, AreNamedAsInPyTorch) {
  EXPECT_EQ(OpenDevice("cpu").value(), c10::Device(c10::kCPU));
  EXPECT_EQ(OpenDevice("test_device").value(), kTestDevice);
  EXPECT_EQ(OpenDevice("test_device:0").value(), kTestDevice);
  EXPECT_EQ(OpenDevice("test_device:1").value(), kSecondTestDevice);
}

TEST(Devices, ThatAreMissingAreRefused) {
  for (const char* const name :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "meta", "test_device:99999"}) {
    EXPECT_NE(ErrorOf(name).find("is none that PyTorch knows"), std::string::npos) << name;
  }
  EXPECT_NE(ErrorOf("test_device:2").find("PyTorch finds 2 devices"), std::string::npos);
  EXPECT_NE(ErrorOf("xpu").find("device xpu: "), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
