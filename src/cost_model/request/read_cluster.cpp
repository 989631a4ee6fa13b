#include "cost_model/request/read_cluster.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/kept_files.h"
#include "base/text/numbers.h"
#include "base/text/split.h"
#include "base/units.h"
#include "cost_model/request/named_file.h"
#include "cost_model/request/read_name.h"

namespace penstock {
namespace {

constexpr int kMostDevices = 1 << 20;
constexpr double kUsualRestart = 600;           // seconds
constexpr double kUsualStorageBandwidth = 1e9;  // bytes per second of a device
constexpr double kUsualSiteBandwidth = 1.25e9;  // 10 Gbit/s
constexpr double kUsualSiteLatency = 10e-3;     // seconds

Result<Device> LoadDevice(const std::string& device) {
  auto found = FindDevice(device);
  if (found) return found;
  static auto& kept = *new KeptFiles<Device>;
  if (NamesFile(device)) return kept.Get(device, ReadDevice);
  return tl::unexpected(About("device", device, std::move(found).error()));
}

// "8x8". A number alone may mean nodes or devices.
Status ReadNodes(const std::string& text, Cluster& cluster) {
  const std::size_t by = text.find('x');
  if (const auto number = ParseInt(text); by == std::string::npos && number && *number >= 1) {
    return InvalidParameter(
        "nodes",
        "{}: give nodes and devices per node: {}x{} for {} nodes of {} devices, or 1x{} "
        "for "
        "one node of {}",
        text, *number, Cluster{}.devices_per_node, *number, Cluster{}.devices_per_node, *number,
        *number);
  }
  const auto nodes = ParseInt(text.substr(0, by));
  const auto devices = ParseInt(by == std::string::npos ? "" : text.substr(by + 1));
  const bool fits = nodes && devices && *nodes >= 1 && *devices >= 1 && *nodes <= kMostDevices &&
                    *devices <= kMostDevices / *nodes;
  if (!fits) {
    return InvalidParameter("nodes", "{}: give nodes and devices per node (8x8), at most {} in all",
                            Quote(text), kMostDevices);
  }
  cluster.nodes = *nodes;
  cluster.devices_per_node = *devices;
  return {};
}

// "h100+a100" with "4x8+2x8".
Status ReadGroups(const std::vector<std::string>& devices, const ModelRequest& request,
                  Cluster& cluster) {
  const std::vector<std::string> nodes = SplitAt(request.nodes.value_or(""), '+');
  if (nodes.size() != devices.size()) {
    return InvalidParameter("nodes", "{}: give the nodes of each of the {} devices (4x8+2x8)",
                            Quote(request.nodes.value_or("")), devices.size());
  }
  int all = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Cluster own;
    PENSTOCK_TRY(own.device, LoadDevice(devices[i]));
    PENSTOCK_TRY_STATUS(ReadNodes(nodes[i], own));
    if (i > 0 && own.devices_per_node != cluster.devices_per_node) {
      return InvalidParameter("nodes", "{}: nodes with equally many devices are needed",
                              Quote(*request.nodes));
    }
    cluster.devices_per_node = own.devices_per_node;
    all += own.nodes;
    cluster.groups.push_back({.device = own.device, .nodes = own.nodes});
  }
  if (all > kMostDevices / cluster.devices_per_node) {
    return InvalidParameter("nodes", "{}: give at most {} devices in all", Quote(*request.nodes),
                            kMostDevices);
  }
  cluster.device = cluster.groups.front().device;
  cluster.nodes = all;
  return {};
}

// Sets `value` to what the field says, if it is given.
Status ReadWithUnit(const char* field, const std::optional<std::string>& text,
                    Result<double> (*parse)(std::string_view), double& value) {
  if (!text) return {};
  const Result<double> parsed = parse(*text);
  if (!parsed) return InvalidParameter(field, ": {}", parsed.error().line());
  value = *parsed;
  return {};
}

// Refuses fields that have no effect without another one.
Status RefuseWithout(const char* needed,
                     std::initializer_list<std::pair<const char*, bool>> given) {
  for (const auto& [field, is_given] : given) {
    if (!is_given) continue;
    return InvalidParameter(field, "has no effect here: there is no `{}`; leave it out", needed);
  }
  return {};
}

Status ReadSites(const ModelRequest& request, Cluster& cluster) {
  if (!request.sites) {
    return RefuseWithout("sites", {{"across_sites", request.across_sites.has_value()},
                                   {"site_bandwidth", request.site_bandwidth.has_value()},
                                   {"site_latency", request.site_latency.has_value()}});
  }
  Sites& sites = cluster.sites;
  sites.count = *request.sites;
  if (sites.count < 1 || cluster.nodes % sites.count != 0) {
    return InvalidParameter("sites", "{}: they do not divide the {} `nodes`", sites.count,
                            cluster.nodes);
  }
  PENSTOCK_TRY(sites.across,
               ReadName<AcrossSites>("across_sites", request.across_sites.value_or("pipeline"),
                                     kAcrossSitesNames));
  sites.bandwidth = kUsualSiteBandwidth;
  sites.latency = kUsualSiteLatency;
  PENSTOCK_TRY_STATUS(
      ReadWithUnit("site_bandwidth", request.site_bandwidth, ParseBandwidth, sites.bandwidth));
  return ReadWithUnit("site_latency", request.site_latency, ParseSeconds, sites.latency);
}

Status ReadFailures(const ModelRequest& request, Failures& failures) {
  if (!request.failures) {
    return RefuseWithout("failures",
                         {{"restart", request.restart.has_value()},
                          {"storage_bandwidth", request.storage_bandwidth.has_value()}});
  }
  PENSTOCK_TRY_STATUS(ReadWithUnit("failures", request.failures, ParseSeconds, failures.device));
  if (failures.device == 0) {
    return InvalidParameter("failures", "{}: more than 0 is needed", Quote(*request.failures));
  }
  failures.restart = kUsualRestart;
  failures.storage_bandwidth = kUsualStorageBandwidth;
  PENSTOCK_TRY_STATUS(ReadWithUnit("restart", request.restart, ParseSeconds, failures.restart));
  return ReadWithUnit("storage_bandwidth", request.storage_bandwidth, ParseBandwidth,
                      failures.storage_bandwidth);
}

}  // namespace

Result<Cluster> ReadCluster(const ModelRequest& request) {
  Cluster cluster;
  const std::vector<std::string> devices = SplitAt(request.device.value_or(kUsualDevice), '+');
  if (devices.size() > 1) {
    PENSTOCK_TRY_STATUS(ReadGroups(devices, request, cluster));
  } else {
    PENSTOCK_TRY(cluster.device, LoadDevice(devices.front()));
    if (request.nodes) PENSTOCK_TRY_STATUS(ReadNodes(*request.nodes, cluster));
  }
  PENSTOCK_TRY_STATUS(ReadSites(request, cluster));
  PENSTOCK_TRY_STATUS(ReadFailures(request, cluster.failures));
  return cluster;
}

}  // namespace penstock
