// Checkpoints of a run: parameters and optimizer state under the parameters' names in the whole
// model, so that a checkpoint is independent of the partition into stages, ranks and processes.
//
// The checkpoint at the end of a run (model.safetensors) contains only the parameters. A checkpoint
// during a run is a folder with the shards of all processes (checkpoint/manifest.h). It also
// contains "optimizer.KIND.PARAMETER", and a run can resume from it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_reader.h"
#include "config/train_config.h"
#include "runtime/processes/collectives.h"
#include "train/checkpoint/safetensors.h"
#include "train/evaluation/language_model.h"

namespace penstock {

class Optimizer;

// A tensor of a run's state, or a part of it. It shares memory with its owner.
struct StatePiece {
  StatePiece(std::string tensor, at::Tensor whole)
      : name(std::move(tensor)), values(std::move(whole)), layout(values.sizes().vec()) {}
  // `part` has the first elements of the layout.
  StatePiece(std::string tensor, at::Tensor part, Layout its_layout)
      : name(std::move(tensor)), values(std::move(part)), layout(std::move(its_layout)) {}

  std::string name;
  at::Tensor values;
  Layout layout;
  bool casts = false;  // whether Restore may cast the saved values to this dtype
};
using NamedState = std::vector<StatePiece>;

struct CheckpointInfo {
  std::int64_t step = 0;  // optimizer steps done
  TrainConfig config;
  double seconds = 0;  // of training until then
  std::vector<ConsumedData> data = {};
};

// An open checkpoint. Its tensors are read when they are needed.
struct Checkpoint {
  CheckpointInfo info;
  CheckpointReader reader;

  const std::string& path() const { return reader.path(); }
  bool has_optimizer() const;
};

// Returns the state of an optimizer for a checkpoint, except for the parameters in `without`. Empty
// before the state is created.
NamedState OptimizerState(const Optimizer& optimizer, const std::set<std::string>& without = {});

// Returns a manifest without files and tensors.
Manifest ManifestOf(const CheckpointInfo& info);

// Saves the parameters without optimizer state. The file appears completely or not at all.
Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);
// Saves a model whose stages are on several processes. Called on all processes, see
// WriteSingleFile.
Status SaveCheckpoint(Collectives& processes, const LanguageModel& model,
                      const CheckpointInfo& info, const std::string& path);

// Opens the checkpoint that `path` refers to, see CheckpointAt. Errors: kNotFound for a missing
// checkpoint; kInvalidArgument if it is damaged, truncated or not a checkpoint of Penstock.
Result<Checkpoint> OpenCheckpoint(const std::string& path);
// Opens a checkpoint with optimizer state: never model.safetensors of a run's folder.
Result<Checkpoint> OpenFullCheckpoint(const std::string& path);

// Returns the name in a checkpoint of a tensor of the optimizer's state.
std::string OptimizerTensorName(std::string_view kind, std::string_view parameter);

// Reads the values of all pieces, and nothing else of the checkpoint. Errors: kInvalidArgument,
// naming the checkpoint, if a tensor is missing or has another shape or dtype; the state is then
// unchanged. As CheckpointReader::Read if it is damaged; the state is then unspecified.
Status Restore(Checkpoint& checkpoint, const NamedState& state);

// Sets every parameter of the model. Ignores unknown parameters if other processes have stages of
// the model. Errors: as Restore, and kInvalidArgument for an unknown parameter.
Status SetWeights(Checkpoint& checkpoint, const LanguageModel& model);
// Sets every parameter of the model to its moving average. Errors: as Restore, and kInvalidArgument
// if the checkpoint has no averages.
Status SetAverages(Checkpoint& checkpoint, const LanguageModel& model);

}  // namespace penstock
