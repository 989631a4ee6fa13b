#include "tests/engine/train/tested_device.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "graph/device/device_queue.h"

namespace penstock {
namespace {

// Opens the device before PyTorch is used, as programs do.
class OpenTestedDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
    const std::string name = TestedDevice();
    const auto device = OpenDevice(name);
    if (!device) {
      std::fprintf(stderr, "%s\n", device.error().line().c_str());
      std::_Exit(kSkipped);
    }
    if (name == "test_device") at::globalContext().setSDPUseFlash(false);  // it has no such op
  }
};

[[maybe_unused]] const auto* const kOpened =
    ::testing::AddGlobalTestEnvironment(new OpenTestedDevice);

}  // namespace
}  // namespace penstock
