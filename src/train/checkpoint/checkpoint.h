// Checkpoints in the safetensors format: parameters and optimizer state under the parameters' names
// in the whole model, so that a checkpoint is independent of the partition into stages. The step
// and the configuration are metadata.
//
// The checkpoint at the end of a run (model.safetensors) contains only the parameters. A checkpoint
// during a run also contains "optimizer.KIND.PARAMETER", and a run can resume from it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/safetensors.h"
#include "train/config.h"
#include "train/evaluation/language_model.h"

namespace penstock {

class AdamW;

// Tensors by name. They share memory with their owners.
using NamedState = std::vector<std::pair<std::string, at::Tensor>>;

struct CheckpointInfo {
  std::int64_t step = 0;  // optimizer steps done
  TrainConfig config;
  double seconds = 0;  // of training until then
};

struct Checkpoint {
  std::string path;  // of the file
  CheckpointInfo info;
  std::map<std::string, at::Tensor> weights;    // by parameter
  std::map<std::string, at::Tensor> optimizer;  // by name, including "optimizer."; may be empty
};

// Returns the state of an optimizer for a checkpoint, except for the parameters in `without`. Empty
// before the state is created.
NamedState OptimizerState(const AdamW& optimizer, const std::set<std::string>& without = {});

// Adds the metadata that ReadCheckpoint requires.
void SetInfo(const CheckpointInfo& info, Safetensors& content);

// Saves the parameters without optimizer state. The file appears completely or not at all.
Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);
// The same for a model whose stages are on several hosts. Called on all hosts, see WriteTogether.
Status SaveCheckpoint(Collectives& hosts, const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);

// Reads a checkpoint. `path` is a file or a folder: for a run's folder, uses its model.safetensors
// or its newest checkpoint, whichever was written last; for a folder of checkpoints, the newest.
// Errors: kNotFound for a missing file; kInvalidArgument if the file is damaged, truncated or not a
// checkpoint of Penstock.
Result<Checkpoint> ReadCheckpoint(const std::string& path);

// Sets every parameter of the model. Ignores unknown parameters if other hosts have stages of the
// model. Errors: kInvalidArgument, naming the file, if a parameter is missing, unknown or of
// another shape; the model is then unchanged.
Status SetWeights(const Checkpoint& checkpoint, const LanguageModel& model);

// Restores the optimizer to the checkpoint's step. Requires: its state was created
// (AdamW::MakeState), for parameters of the checkpoint's model. Errors: kInvalidArgument if state
// is missing.
Status SetOptimizer(const Checkpoint& checkpoint, AdamW& optimizer);

}  // namespace penstock
