// The key `profile` of a machine file: what stages of one model cost on one machine, by their
// number of layers, as `penstock profile` measures them:
//
//   profile:
//     ranks: 2                # that were measured together
//     threads: 1              # of each rank
//     cores: 2                # of the machine
//     layers: 8               # of the profiled model
//     comm: 2e-05             # seconds from the end of an action to its consumer on another rank
//     message_bytes: 65536
//     early_gradients: true   # whether B sends its input gradient before it runs W
//     update: optimizer       # the pass that adds updates as the run has them
//     between_threads:        # two ranks that are threads of one process
//       {latency: 2e-06, message: 2e-06, all_reduce_latency: 4e-06, all_reduce_bandwidth: 3e+09}
//     between_processes: ...  # two ranks in processes of their own
//     first:                  # the stage with the embedding
//       stage: {forward: 1e-4, backward_weight: 2e-4, activation: 131072}
//       layer: {forward: 2e-3, backward_weight: 4e-3, activation: 2097152}
//     middle: ...
//     last: ...               # the stage with the head and the loss
//     run: {model.dim: "128", batch: "1"}
//
// A stage costs `stage` and, for each of its layers, `layer`. Times are in seconds, memory is in
// bytes, bandwidths are in bytes per second.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text/yaml_map.h"
#include "schedule/stage_costs.h"

namespace penstock {

// What a cost takes without layers, and what each layer adds.
struct CostsByDepth {
  StageCosts stage, layer;
};

// Messages and collectives between two ranks.
struct ConnectionCosts {
  double latency = 0;  // of an empty message, one way
  double message = 0;  // of a message between stages, one way
  double all_reduce_latency = 0;
  double all_reduce_bandwidth = 0;  // size of the sum over the rest of its time
};

struct StageProfile {
  int ranks = 1, threads = 1, cores = 1;
  int layers = 1;
  double comm = 0, message_bytes = 0;
  bool early_gradients = false;
  std::string update;
  ConnectionCosts between_threads, between_processes;
  CostsByDepth first, middle, last;
  // Keys of the training configuration with their values, without which the costs do not hold.
  std::vector<std::pair<std::string, std::string>> run = {};
};

// Costs that are all 0; factors are 1.
StageCosts NoCosts();

// Returns the costs of stages with one and with `deep` layers as costs by depth. Measured noise
// makes no cost negative.
CostsByDepth FitDepth(const StageCosts& one, const StageCosts& more, std::int64_t deep);

// Returns the costs of `replicas` chains of stages with these numbers of layers. A stage that is
// both first and last has the costs of both.
std::vector<StageCosts> StagesOfProfile(const StageProfile& profile,
                                        const std::vector<std::int64_t>& layers, int replicas);

// Adds what `data` replicas of the pipeline exchange to the time of each stage's update. `shards`:
// each updates its share of the parameters (ZeRO-1).
void AddReplicas(const StageProfile& profile, int data, bool shards,
                 std::vector<StageCosts>& stages);

std::string ToYaml(const StageProfile& profile);
// Errors: kInvalidArgument, naming the line and the key.
Result<StageProfile> ReadStageProfile(const YamlMap& map);

}  // namespace penstock
