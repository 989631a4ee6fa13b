// How often a rank gathers the weights that replicas divide, and sums their gradients.
#pragma once

#include "cost_model/model_on_cluster.h"

namespace penstock {

// Collectives of all weights of a stage, or of their gradients: in each F, each I and each step.
struct ShardCounts {
  int forward_gathers = 0, backward_gathers = 0, backward_sums = 0;
  int step_gathers = 1, step_sums = 1;
  // Whether a rank holds the gradients of all weights of its stages until the end of the step,
  // although replicas divide them, and sums them after its last backward.
  bool holds_gradients = false;
};

// torch's FSDP2 as torchtitan calls it: without a pipeline, each microbatch gathers weights in F
// and sums gradients in I; with `zero` 3, F reshards the weights, and I gathers them again
// (reshard_after_forward). With a pipeline, gradients are summed after the last microbatch
// (torch/distributed/pipelining/stage.py: backward_maybe_with_nosync), and weights stay gathered
// from the first one on, unless F reshards them. Recomputation reads what I has gathered. Other
// implementations shard with `zero` 3 only, and then in every microbatch.
ShardCounts ShardCountsOf(const ModelOnCluster& model, bool has_pipeline);

}  // namespace penstock
