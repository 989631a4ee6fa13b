// Seconds of kernels and messages on one device of a cluster, by a roofline: a kernel takes as long
// as its FLOPs or its memory traffic need, whichever is longer (Williams et al., Roofline, 2009).
#pragma once

#include <cstdint>

#include "cost_model/model_costs.h"
#include "schedule/pricing/collective_time.h"

namespace penstock {

// How long messages take, one after the other, and for how much of that they use a link of a node
// and of the network. Messages may use both at once.
struct LinkUse {
  double seconds = 0, node = 0, network = 0;

  LinkUse& operator+=(const LinkUse& other) {
    seconds += other.seconds;
    node += other.node;
    network += other.network;
    return *this;
  }
};

// The time of kernels with what their messages leave of it, and when these use the links.
struct PartTime {
  double seconds = 0, node = 0, network = 0;
  double at_peak = 0;  // seconds of its FLOPs at the device's peak

  void Add(const PartTime& other, double times) {
    seconds += times * other.seconds;
    at_peak += times * other.at_peak;
    node += times * other.node;
    network += times * other.network;
  }
  // The part of further messages that is exposed: `part` of them, but at least what takes longer
  // than this part leaves their links to them. So no link sends faster than its rate.
  double Exposed(const LinkUse& messages, double part) const;
};

class Roofline {
 public:
  // Ownership: the model must live as long as this.
  explicit Roofline(const ModelOnCluster& model)
      : cluster_(model.cluster),
        batch_(model.batch),
        mesh_(model.mesh()),
        expert_mesh_(model.expert_mesh()),
        linked_(model.cluster.linked_devices()),
        stage_devices_(static_cast<double>(model.ranks_per_stage())) {}

  // The time of the kernels of one part: the device's or the launches', whichever is longer, and
  // messages that neither hides; or the rest of what the host does, if that takes longer. The
  // cluster's factor of times is one of devices and hosts: it makes no link faster.
  PartTime TimeOf(const Kernels& kernels) const;
  double Seconds(const Kernels& kernels) const { return TimeOf(kernels).seconds; }
  double OfMemory(double bytes) const;
  double OfHostLink(double bytes) const;
  // The time of a message among `devices` neighboring devices.
  double OfMessage(double bytes, double latency, std::int64_t devices) const;
  double CollectiveLatency() const;
  // The time until all ranks that divide a layer have the parts of the others.
  double OfGather(double bytes) const;
  // The time of an all-reduce over all ranks that divide a layer.
  double OfSum(double bytes) const;
  // The time of an all-reduce between two devices that are `distance` devices apart.
  double OfSumOfTwo(double bytes, std::int64_t distance) const;
  // The links of `replicas` devices that are `stride` devices apart: the node's links, between
  // nodes the network, and the link between sites. If the replicas do not fill whole nodes, all of
  // them use the network.
  CollectiveGroup GroupOf(int replicas, int stride) const;

 private:
  // Ranks that are `stride` devices apart and span `devices`. A stride of 0 means a single one.
  struct Reach {
    std::int64_t stride, devices;
  };
  static Reach ReachOf(const Mesh& mesh, Axis axis) { return {mesh.Stride(axis), mesh.Span(axis)}; }

  CollectiveGroup GroupInSite(int replicas, int stride) const;
  // No factor makes a kernel faster than the device's peaks.
  double DeviceSeconds(const KernelCost& kernel) const;
  double SecondsAtPeak(const KernelCost& kernel) const;  // of its FLOPs
  Precision PrecisionOf(const KernelCost& kernel) const;
  // The factor of a matmul's time by its start and end, which take as long as a number of steps
  // along its inner dimension.
  double StartOf(const KernelCost& kernel, Precision precision) const;
  double MatmulSeconds(double flops, Precision precision) const;
  // In collectives, each device sends to all others at once.
  LinkUse MessagesOf(const KernelCost& kernel) const;
  LinkUse Routed(const KernelCost& kernel) const;
  LinkUse Gathered(double bytes) const;
  // The time of the matmul under which a kernel's messages run.
  double HiddenBy(const KernelCost& kernel) const;
  // The part of a kernel's messages that compute does not hide.
  double ExposedPart(const KernelCost& kernel) const;
  // The format of everything but quantized linear layers.
  Precision Plain() const;
  // The time in which the ranks that divide a layer send these bytes each, in rings. Over several
  // nodes, each rank exchanges its part of what its node has with one rank of each other node.
  LinkUse OfRings(double bytes) const;
  // The time to send bytes, in equal parts, to all others. Those outside of the rank's own node are
  // reached over the network, at the same time as the others.
  LinkUse OfLink(double bytes, const Reach& reach) const;
  // `of_link` and `of_network` are parts of their bandwidths.
  LinkUse OfLink(double bytes, const Reach& reach, double of_link, double of_network) const;

  const Cluster& cluster_;
  const Microbatch& batch_;
  Mesh mesh_, expert_mesh_;
  int linked_;            // devices that links join
  double stage_devices_;  // of a stage
};

}  // namespace penstock
