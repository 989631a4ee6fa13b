#include "cost_model/device.h"

#include <fmt/ranges.h>

#include <utility>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "base/units.h"
#include "cost_model/same_name.h"

namespace penstock {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// The network of the vendor's reference node with eight devices and one port per device.
constexpr double kHdr = 25e9, kNdr = 50e9, kXdr = 100e9;  // 200, 400 and 800 Gbit/s
// A node with 100 Gbit/s for eight devices, as clouds rent devices without NVLink.
constexpr double kCloud = 1.5625e9;
// Host links in one direction. NVLink-C2C joins a Grace to two devices, and each has half of it.
constexpr double kPcie3 = 16e9, kPcie4 = 32e9, kPcie5 = 64e9, kC2c = 225e9;
constexpr double kLatency = 10e-6;
constexpr int kNvl72 = 72;

// Factors of times by format, chosen with the constants of transformer-engine (docs/measured.md). A
// format without rows has the mean of the device's others.
struct TimeFactors {
  double bf16 = 1, fp8 = 1, fp8_blockwise = 1, mxfp8 = 1, nvfp4 = 1;
};
constexpr TimeFactors kH100Times{0.89, 0.91, 0.85, 0.89, 0.89};
// One factor for all of AMD's devices and formats: Primus' published runs of dense models and of
// Mixtral on MI325X and MI355X take 1.29 to 1.46 of the times that NVIDIA's constants give, 1.29 in
// the median, without the one whose recomputation is open.
constexpr TimeFactors kAmdTimes{1.29, 1.29, 1.29, 1.29, 1.29};

Device WithTimes(const TimeFactors& times, Device device) {
  device.bf16_time_factor = times.bf16;
  device.fp8_time_factor = times.fp8;
  device.fp8_blockwise_time_factor = times.fp8_blockwise;
  device.mxfp8_time_factor = times.mxfp8;
  device.nvfp4_time_factor = times.nvfp4;
  return device;
}

// Peaks are from the vendors' data sheets, without sparsity, of matmuls that add in fp32. Memory is
// what the driver reports, which is the data sheet's number in GiB.
std::vector<Device> MakeNvidiaNodes() {
  return {
      // NVIDIA V100 SXM2 data sheet: its 16-bit format is fp16. NVLink 300 GB/s in both directions.
      // DGX-1: four ports of 100 Gbit/s for eight devices.
      {"v100", 125e12, 15.7e12, 0, 0, 32 * kGiB, 0.9e12, 150e9, 6.25e9, kPcie3},
      // NVIDIA A100 SXM data sheet; NVLink 600 GB/s in both directions.
      {"a100-40gb", 312e12, 19.5e12, 0, 0, 40 * kGiB, 1.555e12, 300e9, kHdr, kPcie4},
      {"a100", 312e12, 19.5e12, 0, 0, 80 * kGiB, 2.039e12, 300e9, kHdr, kPcie4},
      // An A100 whose NVLink has 400 GB/s in both directions.
      {"a800", 312e12, 19.5e12, 0, 0, 80 * kGiB, 2.039e12, 200e9, kHdr, kPcie4},
      // NVIDIA H100 SXM data sheet; NVLink 900 GB/s in both directions.
      WithTimes(kH100Times,
                {"h100", 989.4e12, 66.9e12, 1978.9e12, 0, 80 * kGiB, 3.35e12, 450e9, kNdr, kPcie5}),
      // An H100 whose NVLink has 400 GB/s in both directions (DeepSeek-V3's report, 2024, 3.1).
      WithTimes(kH100Times,
                {"h800", 989.4e12, 66.9e12, 1978.9e12, 0, 80 * kGiB, 3.35e12, 200e9, kNdr, kPcie5}),
      // NVIDIA HGX H20: 148 TFLOP/s, 96 GB and 4.0 TB/s, with all of an H100's NVLink.
      WithTimes(kH100Times,
                {"h20", 148e12, 44e12, 296e12, 0, 96 * kGiB, 4e12, 450e9, kNdr, kPcie5}),
      // NVIDIA H200 SXM data sheet: an H100 with other memory.
      WithTimes(kH100Times,
                {"h200", 989.4e12, 66.9e12, 1978.9e12, 0, 141 * kGiB, 4.8e12, 450e9, kNdr, kPcie5}),
      // NVIDIA DGX B200 data sheet: an eighth of 36 PFLOP/s in 16 bits with sparsity, 1440 GB and
      // 64 TB/s; NVLink 1.8 TB/s in both directions.
      WithTimes({1.16, 1.13, 1.1, 1.01, 1.1},
                {"b200", 2250e12, 75e12, 4500e12, 9000e12, 180 * kGiB, 8e12, 900e9, kNdr, kPcie5}),
      // NVIDIA DGX B300 data sheet: an eighth of 36 PFLOP/s in 16 bits with sparsity, of 108
      // PFLOP/s in 4 bits without, and of 2.1 TB; eight ConnectX-8.
      WithTimes({1.13, 1.04, 1.04, 0.95, 1.04},
                {"b300", 2250e12, 75e12, 4500e12, 13500e12, 270 * kGiB, 8e12, 900e9, kXdr, kPcie5}),
      // NVIDIA GB200 NVL72 data sheet: a 72nd of 360 PFLOP/s in 16 bits with sparsity, 13.4 TB and
      // 576 TB/s.
      WithTimes({1.16, 1.11, 1.09, 1.02, 1.06},
                {"gb200", 2500e12, 80e12, 5000e12, 10000e12, 186 * kGiB, 8e12, 900e9, kNdr, kC2c,
                 kLatency, kNvl72}),
      // NVIDIA GB300 NVL72 data sheet: a 72nd of 1,080 PFLOP/s in 4 bits and of 20 TB; ConnectX-8.
      WithTimes({0.95, 0.93, 0.89, 0.86, 0.84},
                {"gb300", 2500e12, 80e12, 5000e12, 15000e12, 279 * kGiB, 8e12, 900e9, kXdr, kC2c,
                 kLatency, kNvl72}),
  };
}

// The devices of a node are joined by PCIe.
std::vector<Device> MakeNvidiaCards() {
  return {
      // NVIDIA A10G data sheet: half of 140 TFLOP/s with sparsity. AWS g5.48xlarge.
      {"a10g", 70e12, 31.2e12, 0, 0, 24 * kGiB, 0.6e12, kPcie4, kCloud, kPcie4},
      // NVIDIA L4 data sheet: half of 242 and 485 TFLOP/s with sparsity. Google g2-standard-96.
      {"l4", 121e12, 30.3e12, 242.5e12, 0, 24 * kGiB, 0.3e12, kPcie4, kCloud, kPcie4},
      // NVIDIA L40S data sheet.
      {"l40s", 362.05e12, 91.6e12, 733e12, 0, 48 * kGiB, 0.864e12, kPcie4, kCloud, kPcie4},
      // NVIDIA's white papers of GA102 (appendix A), Ada (appendix A) and RTX Blackwell (appendix
      // A): sums in fp32 have half the rate of sums in fp16.
      {"rtx-3090", 71e12, 35.6e12, 0, 0, 24 * kGiB, 0.936e12, kPcie4, kCloud, kPcie4},
      {"rtx-4090", 165.2e12, 82.6e12, 330.3e12, 0, 24 * kGiB, 1.008e12, kPcie4, kCloud, kPcie4},
      {"rtx-5090", 209.5e12, 104.8e12, 419e12, 1676e12, 32 * kGiB, 1.792e12, kPcie5, kCloud,
       kPcie5},
  };
}

Device From(const char* vendor, Device device) {
  device.vendor = vendor;
  return device;
}

std::vector<Device> MakeOthers() {
  constexpr int kPodOfV5p = 8960, kPodOfV6e = 256;
  // XLA computes a matmul of fp32 as six of bf16 (jax.lax.Precision.HIGHEST).
  constexpr double kPassesOfF32 = 6;
  return {
      // AMD Instinct MI300X data sheet; seven links of 128 GB/s in both directions.
      From("amd", WithTimes(kAmdTimes, {"mi300x", 1307.4e12, 163.4e12, 2614.9e12, 0, 192 * kGiB,
                                        5.3e12, 448e9, kNdr, kPcie5})),
      // AMD Instinct MI325X data sheet.
      From("amd", WithTimes(kAmdTimes, {"mi325x", 1307.4e12, 163.4e12, 2614.9e12, 0, 256 * kGiB,
                                        6e12, 448e9, kNdr, kPcie5})),
      // AMD Instinct MI355X data sheet; seven links of 153.6 GB/s in both directions.
      From("amd", WithTimes(kAmdTimes, {"mi355x", 2516.6e12, 157.3e12, 5033.2e12, 10066.3e12,
                                        288 * kGiB, 8e12, 537.6e9, kNdr, kPcie5})),
      // docs.cloud.google.com/tpu/docs/v5p: 1200 GB/s in both directions of a torus that joins a
      // pod, 50 Gbit/s per chip between pods; four chips per host. No floating-point units of 8
      // bits that are faster than bf16's.
      {"tpu-v5p", 459e12, 459e12 / kPassesOfF32, 0, 0, 95 * kGiB, 2.765e12, 600e9, 6.25e9, kPcie4,
       kLatency, kPodOfV5p},
      // docs.cloud.google.com/tpu/docs/v6e: 800 GB/s in both directions, 256 chips per pod, eight
      // per host with four ports of 200 Gbit/s.
      {"tpu-v6e", 918e12, 918e12 / kPassesOfF32, 0, 0, 32 * kGiB, 1.638e12, 400e9, 12.5e9, kPcie5,
       kLatency, kPodOfV6e},
  };
}

std::vector<Device> MakeDevices() {
  std::vector<Device> devices = MakeNvidiaNodes();
  for (const auto make : {&MakeNvidiaCards, &MakeOthers}) {
    for (Device& device : make()) devices.push_back(std::move(device));
  }
  return devices;
}

// People write RTX 4090, rtx4090 and rtx-4090.
std::string WithoutSeparators(std::string_view name) {
  std::string joined(name);
  std::erase_if(joined, [](char c) { return c == '-' || c == '_' || c == ' '; });
  return joined;
}

struct DeviceKey {
  std::string_view name;
  double Device::*field;
  bool is_optional = false;
};
constexpr DeviceKey kDeviceKeys[] = {
    {"bf16_flops", &Device::bf16_flops},
    {"f32_flops", &Device::f32_flops},
    {"fp8_flops", &Device::fp8_flops, true},
    {"fp4_flops", &Device::fp4_flops, true},
    {"memory", &Device::memory},
    {"memory_bandwidth", &Device::memory_bandwidth},
    {"link_bandwidth", &Device::link_bandwidth},
    {"network_bandwidth", &Device::network_bandwidth},
    {"host_bandwidth", &Device::host_bandwidth},
    {"latency", &Device::latency},
    {"bf16_time_factor", &Device::bf16_time_factor},
    {"fp8_time_factor", &Device::fp8_time_factor},
    {"fp8_blockwise_time_factor", &Device::fp8_blockwise_time_factor},
    {"mxfp8_time_factor", &Device::mxfp8_time_factor},
    {"nvfp4_time_factor", &Device::nvfp4_time_factor}};

constexpr const char* kLinkedDevices = "linked_devices";

// A number, a size ("80GiB") or a time ("10us").
Result<double> ReadAmount(const YamlMap& map, const std::string& key) {
  PENSTOCK_TRY(const auto text, map.Text(key));
  const Result<std::int64_t> bytes = ParseBytes(*text);
  if (bytes && key == "memory") return static_cast<double>(*bytes);
  const Result<double> seconds = ParseSeconds(*text);
  if (seconds && key == "latency") return *seconds;
  PENSTOCK_TRY(const auto number, map.Number(key));
  return *number;
}

Result<Device> DeviceOf(const YAML::Node& root, const std::string& path) {
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(root, "a device"));
  std::vector<std::string_view> known = {"name", "like", kLinkedDevices};
  for (const DeviceKey& key : kDeviceKeys) known.push_back(key.name);
  PENSTOCK_TRY_STATUS(map.RequireKnown(known));
  Device device;
  PENSTOCK_TRY(const auto like, map.Text("like"));
  if (like) {
    auto found = FindDevice(*like);
    if (!found) return map.Refuse("like", "{}", found.error().line());
    device = *std::move(found);
  }
  PENSTOCK_TRY(const auto name, map.Text("name"));
  device.name = name.value_or(path);
  for (const DeviceKey& key : kDeviceKeys) {
    const std::string name_of_key(key.name);
    if (map.Has(name_of_key)) {
      PENSTOCK_TRY(device.*key.field, ReadAmount(map, name_of_key));
    }
    if (device.*key.field > 0 || (key.is_optional && device.*key.field == 0)) continue;
    return map.Refuse(name_of_key, "must be positive, or set `like:` (like: h100) to inherit it");
  }
  PENSTOCK_TRY(const auto linked, map.Int(kLinkedDevices));
  if (!linked) return device;
  if (*linked < 0) return map.Refuse(kLinkedDevices, "{}: 0 or more are needed", *linked);
  device.linked_devices = *linked;
  return device;
}

}  // namespace

const std::vector<Device>& KnownDevices() {
  static const auto& devices = *new std::vector<Device>(MakeDevices());
  return devices;
}

std::vector<std::string_view> DeviceNames() {
  std::vector<std::string_view> names;
  for (const Device& device : KnownDevices()) names.push_back(device.name);
  return names;
}

Result<Device> FindDevice(std::string_view name) {
  for (const Device& device : KnownDevices()) {
    const std::string plain = WithoutSeparators(device.name);
    const std::string with_memory = fmt::format("{}{:.0f}GB", plain, device.memory / kGiB);
    for (const std::string& each : {plain, with_memory}) {  // "h100", "H100 80GB"
      if (IsSameName(each, WithoutSeparators(name))) return device;
    }
  }
  const std::vector<std::string_view> names = DeviceNames();
  return NotFound(
      "no device is called {}; {}", Quote(name),
      DidYouMean(name, names,
                 fmt::format("give a YAML file, or one of {}", fmt::join(names, ", "))));
}

Result<Device> ReadDevice(const std::string& path) {
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(path));
  auto device = DeviceOf(root, path);
  if (!device) return tl::unexpected(In(path, device.error()));
  return device;
}

}  // namespace penstock
