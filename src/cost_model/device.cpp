#include "cost_model/device.h"

#include <fmt/ranges.h>

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
// Host links in one direction. NVLink-C2C joins a Grace to two devices, and each has half of it.
constexpr double kPcie3 = 16e9, kPcie4 = 32e9, kPcie5 = 64e9, kC2c = 225e9;
constexpr double kLatency = 10e-6;
constexpr int kNvl72 = 72;
constexpr const char* kAmd = "amd";

// Peaks from the vendors' data sheets, without sparsity. Memory is what the driver reports, which
// is the data sheet's number in GiB.
std::vector<Device> MakeDevices() {
  return {
      // NVIDIA V100 SXM2 data sheet: its 16-bit format is fp16. NVLink 300 GB/s in both directions.
      // DGX-1: four ports of 100 Gbit/s for eight devices.
      {"v100", 125e12, 15.7e12, 0, 0, 32 * kGiB, 0.9e12, 150e9, 6.25e9, kPcie3},
      // NVIDIA A10G data sheet: half of 140 TFLOP/s with sparsity. The devices of a node are joined
      // by PCIe; AWS g5.48xlarge: 100 Gbit/s for eight devices.
      {"a10g", 70e12, 31.2e12, 0, 0, 24 * kGiB, 0.6e12, kPcie4, 1.5625e9, kPcie4},
      // NVIDIA L4 data sheet: half of 242 and 485 TFLOP/s with sparsity. The devices of a node are
      // joined by PCIe; Google g2-standard-96: 100 Gbit/s for eight devices.
      {"l4", 121e12, 30.3e12, 242.5e12, 0, 24 * kGiB, 0.3e12, kPcie4, 1.5625e9, kPcie4},
      // NVIDIA A100 SXM data sheet; NVLink 600 GB/s in both directions.
      {"a100-40gb", 312e12, 19.5e12, 0, 0, 40 * kGiB, 1.555e12, 300e9, kHdr, kPcie4},
      {"a100", 312e12, 19.5e12, 0, 0, 80 * kGiB, 2.039e12, 300e9, kHdr, kPcie4},
      // NVIDIA H100 SXM data sheet; NVLink 900 GB/s in both directions.
      {"h100", 989.4e12, 66.9e12, 1978.9e12, 0, 80 * kGiB, 3.35e12, 450e9, kNdr, kPcie5},
      // NVIDIA H200 SXM data sheet.
      {"h200", 989.4e12, 66.9e12, 1978.9e12, 0, 141 * kGiB, 4.8e12, 450e9, kNdr, kPcie5},
      // NVIDIA DGX B200 data sheet: an eighth of 36 PFLOP/s in 16 bits with sparsity, 1440 GB and
      // 64 TB/s; NVLink 1.8 TB/s in both directions.
      {"b200", 2250e12, 75e12, 4500e12, 9000e12, 180 * kGiB, 8e12, 900e9, kNdr, kPcie5},
      // NVIDIA DGX B300 data sheet: an eighth of 36 PFLOP/s in 16 bits with sparsity, of 108
      // PFLOP/s
      // in 4 bits without, and of 2.1 TB; eight ConnectX-8.
      {"b300", 2250e12, 75e12, 4500e12, 13500e12, 270 * kGiB, 8e12, 900e9, kXdr, kPcie5},
      // NVIDIA GB200 NVL72 data sheet: a 72nd of 360 PFLOP/s in 16 bits with sparsity, 13.4 TB and
      // 576 TB/s.
      {"gb200", 2500e12, 80e12, 5000e12, 10000e12, 186 * kGiB, 8e12, 900e9, kNdr, kC2c, kLatency,
       kNvl72},
      // NVIDIA GB300 NVL72 data sheet: a 72nd of 1,080 PFLOP/s in 4 bits and of 20 TB; ConnectX-8.
      {"gb300", 2500e12, 80e12, 5000e12, 15000e12, 279 * kGiB, 8e12, 900e9, kXdr, kC2c, kLatency,
       kNvl72},
      // AMD Instinct MI300X data sheet; seven links of 128 GB/s in both directions.
      {"mi300x", 1307.4e12, 163.4e12, 2614.9e12, 0, 192 * kGiB, 5.3e12, 448e9, kNdr, kPcie5,
       kLatency, 0, kAmd},
      // AMD Instinct MI325X data sheet.
      {"mi325x", 1307.4e12, 163.4e12, 2614.9e12, 0, 256 * kGiB, 6e12, 448e9, kNdr, kPcie5, kLatency,
       0, kAmd},
      // AMD Instinct MI355X data sheet; seven links of 153.6 GB/s in both directions.
      {"mi355x", 2516.6e12, 157.3e12, 5033.2e12, 10066.3e12, 288 * kGiB, 8e12, 537.6e9, kNdr,
       kPcie5, kLatency, 0, kAmd},
  };
}

struct DeviceKey {
  std::string_view name;
  double Device::*field;
  bool is_optional = false;
};
constexpr DeviceKey kDeviceKeys[] = {{"bf16_flops", &Device::bf16_flops},
                                     {"f32_flops", &Device::f32_flops},
                                     {"fp8_flops", &Device::fp8_flops, true},
                                     {"fp4_flops", &Device::fp4_flops, true},
                                     {"memory", &Device::memory},
                                     {"memory_bandwidth", &Device::memory_bandwidth},
                                     {"link_bandwidth", &Device::link_bandwidth},
                                     {"network_bandwidth", &Device::network_bandwidth},
                                     {"host_bandwidth", &Device::host_bandwidth},
                                     {"latency", &Device::latency}};

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
    if (IsSameName(device.name, name)) return device;
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
