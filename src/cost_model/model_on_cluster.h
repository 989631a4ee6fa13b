// A model and the cluster of devices that trains it: what they are, where, and how they divide it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cost_model/device.h"
#include "cost_model/microbatch.h"
#include "cost_model/recompute.h"
#include "model_spec/model_shape.h"
#include "schedule/mesh.h"

namespace penstock {

// What the replicas or the stages of a job have between them.
enum class AcrossSites { kPipeline, kData };
inline constexpr std::array<std::string_view, 2> kAcrossSitesNames = {"pipeline", "data"};

// Places far from each other that divide the nodes equally, such as regions.
struct Sites {
  int count = 1;
  AcrossSites across = AcrossSites::kPipeline;
  double bandwidth = 0;  // bytes per second of a site's link in each direction, for all its devices
  double latency = 0;    // seconds
};

// How often devices fail, and what that costs.
struct Failures {
  double device = 0;             // mean seconds between failures of one device; 0: none fails
  double restart = 0;            // seconds from a failure until steps run again
  double storage_bandwidth = 0;  // bytes per second at which a device writes a checkpoint
};

// Consecutive nodes with the same device.
struct NodeGroup {
  Device device;
  int nodes = 1;
  double time_factor = 1;  // as below
  Generation generation = Generation::kHopper;
};

struct Cluster {
  Device device;  // of the first nodes, if they differ
  int nodes = 1;
  int devices_per_node = 8;
  std::vector<NodeGroup> groups = {};  // if the devices of nodes differ, two or more
  Speeds speeds;
  double time_factor = 1;  // of all times, for what the model does not know
  Sites sites = {};
  Failures failures = {};

  int devices() const { return nodes * devices_per_node; }
  int devices_per_site() const { return devices() / sites.count; }
  // The group of the device at an index. Requires: groups is not empty.
  std::size_t NodeGroupOf(int index) const;
  // FLOP/s of a device, as a mean over all.
  double mean_flops(Precision precision) const;
  // The devices that reach each other by the links of a node, which may join several nodes. Jobs
  // use equally many devices of each such group (64 of an NVL72 for 128 devices).
  int linked_devices() const;
};

struct ModelOnCluster {
  ModelShape shape;
  Microbatch batch;
  Cluster cluster;
  int data = 1;  // replicas of every stage
  int zero = 0;
  int zero_ranks = 0;  // replicas that divide states among themselves; 0: all
  Recompute recompute;
  std::string layout;  // model_spec/layout.h; empty: as even as possible

  // The device type of a pipeline rank.
  const Device& DeviceOf(int rank) const;
  double MemoryOf(int rank) const { return DeviceOf(rank).memory; }
  // The model with the devices of one group only, for what it costs there.
  ModelOnCluster OnGroup(std::size_t group) const;
  // The ranks of a stage, and how they divide experts: Axis::kTensor divides each, kExpert and
  // kData have what is left of ranks_of_experts(). Require: CheckDivision succeeds.
  Mesh mesh() const;
  Mesh expert_mesh() const;
  // The devices of a stage.
  std::int64_t ranks_per_stage() const { return batch.tensor * batch.context * data; }
  // The devices that may divide the experts: those of a stage, or, if ranks exchange tokens with
  // others of the same part of the samples only, these.
  std::int64_t ranks_of_experts() const {
    return ranks_per_stage() / (batch.profile.get().shards_over_context ? 1 : batch.context);
  }
  // The devices of a stage in one site.
  std::int64_t site_ranks_per_stage() const {
    const bool spreads = cluster.sites.across == AcrossSites::kData;
    return ranks_per_stage() / (spreads ? cluster.sites.count : 1);
  }
};

// Refuses what cannot be divided among the devices. Errors: kInvalidArgument.
Status CheckDivision(const ModelOnCluster& model);

// The pipeline ranks that fill the cluster. Requires: CheckDivision succeeds.
int PipelineRanks(const ModelOnCluster& model);
// Refuses more than PipelineRanks. Errors: kInvalidArgument.
Status CheckRanks(const ModelOnCluster& model, int ranks);

}  // namespace penstock
