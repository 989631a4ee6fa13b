#include "cost_model/roofline.h"

#include <algorithm>
#include <cmath>

namespace penstock {

double PartTime::Exposed(const LinkUse& messages, double part) const {
  const double busy = std::max(messages.node > 0 ? node : 0, messages.network > 0 ? network : 0);
  return std::max(part * messages.seconds, messages.seconds - std::max(0.0, seconds - busy));
}

PartTime Roofline::TimeOf(const Kernels& kernels) const {
  double device = 0, launches = 0, host = 0, exposed = 0, longest = 0;
  PartTime time;
  for (const KernelCost& kernel : kernels) {
    device += DeviceSeconds(kernel);
    time.at_peak += SecondsAtPeak(kernel);
    launches += kernel.kernels * cluster_.speeds.host_launch;
    host += kernel.host;
    if (kernel.collectives == 0) continue;
    const LinkUse messages = MessagesOf(kernel);
    const double left = std::max(0.0, messages.seconds - HiddenBy(kernel));
    time.node += messages.node;
    time.network += messages.network;
    longest += left;
    exposed += ExposedPart(kernel) * left;
  }
  const double compute = std::max(device, launches * cluster_.time_factor);
  time.seconds =
      std::max(compute + std::max(exposed, longest - compute), host * cluster_.time_factor);
  return time;
}

double Roofline::OfMemory(double bytes) const {
  const double part = std::min(1.0, cluster_.speeds.memory / cluster_.time_factor);
  return bytes / (cluster_.device.memory_bandwidth * part);
}

double Roofline::OfHostLink(double bytes) const {
  return bytes / (cluster_.device.host_bandwidth * cluster_.speeds.link);
}

double Roofline::OfMessage(double bytes, double latency, std::int64_t devices) const {
  return latency + OfLink(bytes, {0, devices}).seconds;
}

double Roofline::CollectiveLatency() const {
  const double latency = cluster_.speeds.collective_latency;
  return latency > 0 ? latency : cluster_.device.latency;
}

double Roofline::OfGather(double bytes) const {
  const auto ranks = static_cast<double>(batch_.tensor);
  if (batch_.tensor == 1) return 0;
  return CollectiveLatency() +
         OfLink(bytes * (ranks - 1) / ranks, ReachOf(mesh_, Axis::kTensor)).seconds;
}

double Roofline::OfSum(double bytes) const {
  const auto ranks = static_cast<double>(batch_.tensor);
  return CollectiveLatency() + OfRings(2 * bytes * (ranks - 1) / ranks).seconds;
}

double Roofline::OfSumOfTwo(double bytes, std::int64_t distance) const {
  const Sites& sites = cluster_.sites;
  const bool far = sites.count > 1 && sites.across == AcrossSites::kPipeline &&
                   distance >= cluster_.devices_per_site();
  if (far) return 2 * sites.latency + bytes * stage_devices_ / sites.bandwidth;
  return 2 * CollectiveLatency() + OfLink(bytes, {0, distance + 1}).seconds;
}

CollectiveGroup Roofline::GroupOf(int replicas, int stride) const {
  const Sites& sites = cluster_.sites;
  if (sites.count == 1 || sites.across == AcrossSites::kPipeline) {
    return GroupInSite(replicas, stride);
  }
  // All devices of a site exchange their shards with the other sites at once.
  const int in_site = replicas / sites.count;
  CollectiveGroup group = GroupInSite(in_site, stride);
  group.members = replicas;
  if (in_site == 1) group.links.levels.clear();
  if (!group.links.levels.empty()) group.links.levels.back().ranks = in_site;
  group.links.levels.push_back(
      {"site", LinkLevel::kAllRanks, sites.latency, sites.bandwidth / cluster_.devices_per_site()});
  return group;
}

CollectiveGroup Roofline::GroupInSite(int replicas, int stride) const {
  const Device& device = cluster_.device;
  const int in_node = std::max(1, linked_ / stride);
  const bool fills = linked_ % stride == 0 && replicas % in_node == 0;
  CollectiveGroup group{replicas, {}};
  if (replicas <= in_node || fills) {
    group.links.levels.push_back(
        {"node", in_node, device.latency, device.link_bandwidth * cluster_.speeds.link});
  }
  if (replicas > in_node) {
    group.links.levels.push_back({"network", LinkLevel::kAllRanks, device.latency,
                                  device.network_bandwidth * cluster_.speeds.network});
  }
  return group;
}

double Roofline::DeviceSeconds(const KernelCost& kernel) const {
  const Precision precision = PrecisionOf(kernel);
  const double bandwidth = cluster_.device.memory_bandwidth * cluster_.speeds.memory;
  const double products =
      MatmulSeconds(kernel.flops - kernel.skipped, precision) / kernel.efficiency;
  const double usual = std::max(products * StartOf(kernel, precision), kernel.bytes / bandwidth) +
                       kernel.kernels * cluster_.speeds.device_launch;
  const double least =
      std::max(SecondsAtPeak(kernel), kernel.bytes / cluster_.device.memory_bandwidth);
  return std::max(usual * cluster_.time_factor, least);
}

double Roofline::SecondsAtPeak(const KernelCost& kernel) const {
  return (kernel.flops - kernel.skipped) / cluster_.device.flops(PrecisionOf(kernel));
}

Precision Roofline::PrecisionOf(const KernelCost& kernel) const {
  return kernel.precision.value_or(kernel.is_linear ? batch_.precision : Plain());
}

double Roofline::StartOf(const KernelCost& kernel, Precision precision) const {
  if (kernel.depth == 0) return 1;
  const Device& device = cluster_.device;
  return 1 + cluster_.speeds.matmul_start * device.flops(precision) /
                 device.flops(Precision::kBf16) / kernel.depth;
}

double Roofline::MatmulSeconds(double flops, Precision precision) const {
  return flops / (cluster_.device.flops(precision) * cluster_.speeds.of(precision));
}

LinkUse Roofline::MessagesOf(const KernelCost& kernel) const {
  LinkUse all{.seconds = kernel.collectives * CollectiveLatency()};
  all += OfRings(kernel.sent);
  all += OfLink(kernel.shared, ReachOf(mesh_, Axis::kContext));
  all += Routed(kernel);
  all += Gathered(kernel.gathered);
  return all;
}

double Roofline::HiddenBy(const KernelCost& kernel) const {
  const bool is_computed = kernel.hidden_by > 0 && !batch_.profile.lora;
  if (!is_computed || cluster_.speeds.hidden_communication) return 0;
  return (MatmulSeconds(kernel.hidden_by, batch_.precision) + cluster_.speeds.device_launch) *
         cluster_.time_factor;
}

double Roofline::ExposedPart(const KernelCost& kernel) const {
  const Speeds& speeds = cluster_.speeds;
  const double part =
      speeds.hidden_communication ? 1 - *speeds.hidden_communication : kernel.exposed;
  return std::min(part * speeds.exposed_factor, 1.0);
}

LinkUse Roofline::Gathered(double bytes) const {
  const Reach reach = ReachOf(expert_mesh_, Axis::kExpert);
  const bool is_mixed = reach.devices > linked_ && reach.stride > 0 && reach.stride < linked_;
  if (!is_mixed || bytes == 0) return OfLink(bytes, reach);
  // Each node gets a token once over the network, by the port of one of its ranks.
  const double ranks = static_cast<double>(reach.devices) / static_cast<double>(reach.stride);
  const double nodes = static_cast<double>(reach.devices) / static_cast<double>(linked_);
  const double inside = OfLink(bytes, {1, linked_}).seconds;
  const double outside =
      OfLink(bytes / (ranks - 1) * (nodes - 1), {linked_, reach.devices}).seconds;
  return {std::max(inside, outside), inside, outside};
}

LinkUse Roofline::Routed(const KernelCost& kernel) const {
  const Speeds& speeds = cluster_.speeds;
  const Reach reach = ReachOf(expert_mesh_, Axis::kExpert);
  double link = speeds.expert_link > 0 ? speeds.expert_link : speeds.link;
  const bool in_rack = reach.devices > cluster_.devices_per_node && reach.devices <= linked_;
  const auto left_between_nodes = batch_.profile.get().copies_between_nodes;
  if (in_rack && kernel.routed_once == 0 && speeds.expert_link > 0 &&
      left_between_nodes != nullptr) {
    link *= left_between_nodes(batch_.profile);
  }
  double network = speeds.expert_network > 0 ? speeds.expert_network : speeds.network;
  if (kernel.routed_once == 0) {
    link *= speeds.copies_link;
    network *= speeds.copies_network;
  }
  if (kernel.routed_once == 0 || reach.devices <= linked_ || reach.stride >= linked_) {
    return OfLink(kernel.routed, reach, link, network);
  }
  // Each node gets a token once over the network, and passes it on.
  const double nodes = static_cast<double>(reach.devices) / static_cast<double>(linked_);
  const double copies = nodes * (1 - std::pow(1 - 1 / nodes, kernel.choices));
  const double outside = kernel.routed_once * copies * (nodes - 1) / nodes /
                         (cluster_.device.network_bandwidth * network);
  const double inside = kernel.routed / nodes / (cluster_.device.link_bandwidth * link);
  return {std::max(outside, inside), inside, outside};
}

Precision Roofline::Plain() const {
  return IsQuantized(batch_.precision) ? Precision::kBf16 : batch_.precision;
}

LinkUse Roofline::OfRings(double bytes) const {
  if (batch_.tensor <= linked_ || bytes == 0) return OfLink(bytes, ReachOf(mesh_, Axis::kTensor));
  const auto ranks = static_cast<double>(batch_.tensor), in_node = static_cast<double>(linked_);
  const double all = bytes * ranks / (ranks - 1);
  LinkUse both = OfLink(all * (in_node - 1) / in_node, {1, linked_});
  both += OfLink(all / in_node * (1 - in_node / ranks), {linked_, batch_.tensor});
  return both;
}

LinkUse Roofline::OfLink(double bytes, const Reach& reach) const {
  return OfLink(bytes, reach, cluster_.speeds.link, cluster_.speeds.network);
}

LinkUse Roofline::OfLink(double bytes, const Reach& reach, double of_link,
                         double of_network) const {
  if (bytes == 0) return {};
  const auto& [stride, devices] = reach;
  const double in_node = bytes / (cluster_.device.link_bandwidth * of_link);
  const double in_network = bytes / (cluster_.device.network_bandwidth * of_network);
  if (devices <= linked_) return {in_node, in_node, 0};
  if (stride == 0 || stride >= linked_) return {in_network, 0, in_network};
  const std::int64_t members = devices / stride;
  const auto ranks = static_cast<double>(members);
  const double outside =
      (ranks - static_cast<double>(linked_) / static_cast<double>(stride)) / (ranks - 1);
  const LinkUse use{0, in_node * (1 - outside), in_network * outside};
  return {std::max(use.node, use.network), use.node, use.network};
}

}  // namespace penstock
