#include "analytic/device.h"

#include <fmt/ranges.h>

#include "analytic/same_name.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/yaml_map.h"
#include "base/units.h"

namespace penstock {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Peaks from the vendors' data sheets, without sparsity. Memory is what the driver reports, which
// is the data sheet's number in GiB. The network is that of the vendor's reference node with eight
// devices and one port per device: 200 Gbit/s with A100 and 400 Gbit/s with all others.
std::vector<Device> MakeDevices() {
  return {
      // NVIDIA A100 80GB SXM data sheet; NVLink 600 GB/s in both directions; PCIe 4.0.
      {"a100", 312e12, 19.5e12, 0, 0, 80 * kGiB, 2.039e12, 300e9, 25e9, 32e9},
      // NVIDIA H100 SXM data sheet; NVLink 900 GB/s in both directions; PCIe 5.0.
      {"h100", 989.4e12, 66.9e12, 1978.9e12, 0, 80 * kGiB, 3.35e12, 450e9, 50e9, 64e9},
      // NVIDIA H200 SXM data sheet.
      {"h200", 989.4e12, 66.9e12, 1978.9e12, 0, 141 * kGiB, 4.8e12, 450e9, 50e9, 64e9},
      // NVIDIA DGX B200 data sheet: an eighth of 36 PFLOP/s with sparsity, 1440 GB and 64 TB/s;
      // NVLink 1.8 TB/s in both directions.
      {"b200", 2250e12, 75e12, 4500e12, 9000e12, 180 * kGiB, 8e12, 900e9, 50e9, 64e9},
      // AMD Instinct MI300X data sheet; seven links of 128 GB/s in both directions.
      {"mi300x", 1307.4e12, 163.4e12, 2614.9e12, 0, 192 * kGiB, 5.3e12, 448e9, 50e9, 64e9},
      // AMD Instinct MI325X data sheet.
      {"mi325x", 1307.4e12, 163.4e12, 2614.9e12, 0, 256 * kGiB, 6e12, 448e9, 50e9, 64e9},
      // AMD Instinct MI355X data sheet; seven links of 153.6 GB/s in both directions.
      {"mi355x", 2516.6e12, 157.3e12, 5033.2e12, 10066.3e12, 288 * kGiB, 8e12, 537.6e9, 50e9, 64e9},
  };
}

struct DeviceKey {
  std::string_view name;
  double Device::*field;
};
constexpr DeviceKey kDeviceKeys[] = {{"bf16_flops", &Device::bf16_flops},
                                     {"f32_flops", &Device::f32_flops},
                                     {"memory", &Device::memory},
                                     {"memory_bandwidth", &Device::memory_bandwidth},
                                     {"link_bandwidth", &Device::link_bandwidth},
                                     {"network_bandwidth", &Device::network_bandwidth},
                                     {"host_bandwidth", &Device::host_bandwidth},
                                     {"latency", &Device::latency}};

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
  std::vector<std::string_view> known = {"name", "like"};
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
    if (device.*key.field > 0) continue;
    return map.Refuse(name_of_key, "must be positive, or set `like:` (like: h100) to inherit it");
  }
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
