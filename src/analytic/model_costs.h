// The costs of a model's stages on a cluster of devices, by a roofline: a kernel takes as long as
// its FLOPs or its memory traffic need, whichever is longer (Williams et al., Roofline, 2009).
#pragma once

#include <vector>

#include "analytic/device.h"
#include "analytic/model_shape.h"
#include "analytic/stage_layers.h"
#include "analytic/state_bytes.h"
#include "schedule/costs.h"

namespace penstock {

// The parts of the peaks that kernels reach. With these, the prediction for Llama 3 405B on H100s
// is within a twentieth of the published throughput (docs/analytic.md).
inline constexpr double kFlopsEfficiency = 0.6;
inline constexpr double kBandwidthEfficiency = 0.8;

struct Cluster {
  Device device;
  int nodes = 1;
  int devices_per_node = 8;
  double flops_efficiency = kFlopsEfficiency;
  double bandwidth_efficiency = kBandwidthEfficiency;  // of memory and links

  int devices() const { return nodes * devices_per_node; }
};

struct ModelOnCluster {
  ModelShape shape;
  Microbatch batch;
  Cluster cluster;
  int data = 1;  // replicas of every stage
  int zero = 0;
};

// In seconds and bytes, for one slice of a microbatch.
struct ModelCosts {
  std::vector<StageCosts> stages;  // of the model
  std::vector<StateBytes> states;  // of each stage on a rank
  double comm = 0;                 // of a message between two ranks
  double message_bytes = 0;
  double offload = 0;  // per byte
};

// Refuses what cannot be divided among the devices. Errors: kInvalidArgument.
Status CheckDivision(const ModelOnCluster& model);

// The pipeline ranks that fill the cluster. Requires: CheckDivision succeeds.
int PipelineRanks(const ModelOnCluster& model);
// Refuses more pipeline ranks than that. Errors: kInvalidArgument.
Status CheckRanks(const ModelOnCluster& model, int ranks);

// Returns the costs of each of `stages` stages, for one of `slices` slices of a microbatch, which
// cost the same. Requires: CheckDivision succeeds. Errors: kInvalidArgument for fewer layers than
// stages.
Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, int stages, int slices = 1);

}  // namespace penstock
