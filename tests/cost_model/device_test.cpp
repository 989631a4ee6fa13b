// Devices by name, and from files.
#include "cost_model/device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cost_model/request/model_request.h"
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
    if (device.name.starts_with("tpu")) continue;  // all chips of a pod
    EXPECT_EQ(device.linked_devices, device.name.starts_with("gb") ? 72 : 0) << device.name;
  }
}

TEST(Device, NamesMayBeWrittenInOtherWays) {
  for (const char* name : {"RTX 4090", "rtx4090", "RTX_4090"}) {
    EXPECT_EQ(ValueOf(FindDevice(name)).name, "rtx-4090") << name;
  }
  EXPECT_EQ(ValueOf(FindDevice("TPUv5p")).name, "tpu-v5p");
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

// Returns the times of a step's parts in every implementation and precision that the device has.
std::vector<double> TimesOn(const std::string& device) {
  std::vector<double> times;
  for (const std::string_view implementation : ImplementationNames()) {
    for (const std::string_view precision : kPrecisionNames) {
      for (const char* name : {"llama-3-8b", "qwen3-30b-a3b"}) {
        ModelRequest request;
        request.model = name;
        request.device = device;
        request.implementation = implementation;
        request.precision = precision;
        request.nodes = "2x8";
        request.tensor = 2;
        request.data = 8;
        request.expert = std::string_view(name) == "llama-3-8b" ? 1 : 8;
        request.zero = 1;
        const auto model = request.Load();
        if (!model) continue;
        const StageCosts stage = CostsOfModel(*model, {1}).value().stages[0];
        times.insert(times.end(), {stage.forward, stage.backward_input, stage.backward_weight,
                                   stage.step, stage.reduce, stage.unshard});
      }
    }
  }
  return times;
}

TEST_F(DeviceFile, IsAsFastAsTheDeviceThatItIsLike) {
  int copies = 0;
  for (const Device& device : KnownDevices()) {
    // Files are kept by their path.
    const std::string path = path_ + std::to_string(copies++);
    std::ofstream(path) << "{name: another, like: " << device.name << "}";
    const std::vector<double> times = TimesOn(device.name);
    EXPECT_FALSE(times.empty()) << device.name;
    EXPECT_EQ(TimesOn(path), times) << device.name;
    std::filesystem::remove(path);
  }
}

TEST(Device, OfTheSameChipWithMoreBandwidthIsNeverSlower) {
  for (const auto& [slower, faster] :
       {std::pair("h100", "h200"), {"h800", "h100"}, {"a800", "a100"}, {"h20", "h200"}}) {
    const std::vector<double> before = TimesOn(slower), after = TimesOn(faster);
    ASSERT_EQ(before.size(), after.size()) << faster;
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_LE(after[i], before[i]) << faster;
  }
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
