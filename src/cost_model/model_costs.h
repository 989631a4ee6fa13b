// The costs of a model's stages on a cluster of devices (roofline.h).
#pragma once

#include <optional>
#include <vector>

#include "cost_model/model_on_cluster.h"
#include "cost_model/stage_layers.h"
#include "schedule/costs.h"
#include "schedule/topology.h"

namespace penstock {

// How a schedule divides the model and its microbatches.
struct PipelineDivision {
  int stages = 1;
  int slices = 1;  // of a microbatch, along the sequence
  // The rank of each stage, which counts if the devices of ranks differ. Empty: all stages are on
  // the first nodes.
  std::vector<int> ranks = {};
  std::optional<bool> has_pipeline = {};  // whether these stages are of several ranks; empty: if
                                          // there are several
  int vocabulary_ranks = 0;  // that share embedding and head; 0: the first and last stage have them
};

// In seconds and bytes, for one slice of a microbatch.
struct ModelCosts {
  std::vector<StageCosts> stages;  // of the model; with slices, their mean
  // By stage, then by slice: later slices attend to more. Empty without slices.
  std::vector<StageCosts> by_slice;
  std::vector<StateBytes> states;  // of each stage on a rank
  double comm = 0;                 // of a message between two ranks, at most
  // The links of a node and between nodes, if some ranks are neighbors in a node and some are not.
  // In Megatron-LM's order: the ranks of a stage are next to each other.
  Topology topology;
  double message_bytes = 0;
  Transfers transfers = Transfers::kAsynchronous;
  double offload = 0;    // per byte
  double peak_part = 0;  // of the device's FLOP/s that F and B of a stage reach together, at most
};

// Returns the layers of each stage. Errors: as CostsOfModel.
Result<std::vector<LayerRange>> LayersOfStages(const ModelOnCluster& model, int stages);

// Returns the costs of each stage. With vocabulary_ranks = p, stages 0 to p-1 are the first ones of
// their ranks. Requires: CheckDivision succeeds. Errors: kInvalidArgument for fewer layers than
// stages, and for slices that do not divide the sequence.
Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, const PipelineDivision& division);

}  // namespace penstock
