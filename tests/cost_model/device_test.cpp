// Devices by name, and from files.
#include "cost_model/device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/results.h"

namespace penstock {
namespace {

class DeviceFile : public testing::Test {
 protected:
  Result<Device> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadDevice(path_);
  }
  std::string MessageOf(const std::string& text) {
    const auto device = Read(text);
    if (device) return "";
    EXPECT_TRUE(device.error().line().starts_with(path_ + ": ")) << device.error().line();
    return device.error().line().substr(path_.size() + 2);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Tests run in several processes at the same time.
  const std::string path_ =
      testing::TempDir() + "penstock_device_" + std::to_string(getpid()) + ".yaml";
};

TEST(Device, HasAllPeaks) {
  for (const Device& device : KnownDevices()) {
    EXPECT_GT(device.bf16_flops, device.f32_flops) << device.name;
    EXPECT_GT(device.memory_bandwidth, device.link_bandwidth) << device.name;
    EXPECT_GT(device.link_bandwidth, device.network_bandwidth) << device.name;
    EXPECT_GT(device.host_bandwidth, 0) << device.name;
    EXPECT_GE(device.memory, 24.0 * (1 << 30)) << device.name;
    EXPECT_TRUE(device.fp4_flops == 0 || device.fp4_flops > 1.9 * device.fp8_flops) << device.name;
  }
}

TEST(Device, OfARackIsLinkedToSeventyOneOthers) {
  for (const Device& device : KnownDevices()) {
    EXPECT_EQ(device.linked_devices, device.name.starts_with("gb") ? 72 : 0) << device.name;
  }
}

TEST(Device, SuggestsTheNearestName) {
  EXPECT_EQ(LineOf(FindDevice("mi300")), "no device is called 'mi300'; did you mean 'mi300x'?");
}

TEST_F(DeviceFile, OverridesAKnownDevice) {
  const auto device = ValueOf(Read("{name: h20, like: h100, bf16_flops: 148e12, memory: 96GiB}"));
  EXPECT_EQ(device.name, "h20");
  EXPECT_EQ(device.bf16_flops, 148e12);
  EXPECT_EQ(device.memory, 96.0 * (1 << 30));
  EXPECT_EQ(device.memory_bandwidth, 3.35e12);
}

TEST_F(DeviceFile, InheritsWhatItLacks) {
  const auto device =
      ValueOf(Read("{like: gb200, fp4_flops: 0, fp8_flops: 4e15, linked_devices: 36}"));
  EXPECT_EQ(device.fp4_flops, 0);
  EXPECT_EQ(device.fp8_flops, 4e15);
  EXPECT_EQ(device.linked_devices, 36);
  EXPECT_EQ(device.bf16_flops, FindDevice("gb200")->bf16_flops);
  EXPECT_EQ(Read("{like: gb200}")->linked_devices, 72);
}

TEST_F(DeviceFile, NamesTheFaultyKey) {
  EXPECT_EQ(MessageOf("{bf16_flops: 1e12}"),
            "line 1: f32_flops: must be positive, or set `like:` (like: h100) to inherit it");
  EXPECT_EQ(MessageOf("{like: h10}"),
            "line 1: like: no device is called 'h10'; did you mean 'h100'?");
  EXPECT_EQ(MessageOf("{like: h100, fp8_flops: -1}").substr(0, 26), "line 1: fp8_flops: must be");
  EXPECT_EQ(MessageOf("{like: h100, linked_devices: -1}"),
            "line 1: linked_devices: -1: 0 or more are needed");
  EXPECT_EQ(MessageOf("{like: h100, latency: -1}").substr(0, 24), "line 1: latency: must be");
  EXPECT_NE(MessageOf("{like: h100, bandwidth: 1}").find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace penstock
