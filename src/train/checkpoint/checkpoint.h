// Checkpoints in the safetensors format: parameters and what the optimizer keeps of them by the
// parameters' names in the whole model, so that a model slice in any way reads what another slice
// wrote; the step and the configuration as metadata.
//
// A checkpoint of the end of a run (model.safetensors) holds the parameters only; one of a run
// under way holds "optimizer.KIND.PARAMETER" besides, and a run can go on from it.
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
#include "train/language_model.h"

namespace penstock {

class AdamW;

// Names and what they stand for; the tensors share memory with their owners.
using NamedState = std::vector<std::pair<std::string, at::Tensor>>;

struct CheckpointInfo {
  std::int64_t step = 0;  // optimizer steps done
  TrainConfig config;
  double seconds = 0;  // of training until then
};

struct Checkpoint {
  std::string path;  // of its file
  CheckpointInfo info;
  std::map<std::string, at::Tensor> weights;    // by parameter
  std::map<std::string, at::Tensor> optimizer;  // by name, "optimizer." and all; may be empty
};

// What a run in progress saves of one optimizer, except for the parameters `without`. Empty before
// its state is made.
NamedState OptimizerState(const AdamW& optimizer, const std::set<std::string>& without = {});

// Adds the information that ReadCheckpoint asks for.
void SetInfo(const CheckpointInfo& info, Safetensors& content);

// The parameters alone. The file appears whole or not at all.
Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);
// The same of a model whose stages are on several hosts, by all of them: see WriteTogether.
Status SaveCheckpoint(Collectives& hosts, const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);

// `path` is the file, or a folder: a run's, whose model.safetensors or newest checkpoint is taken,
// whichever was written last, or one that holds checkpoints.
// Errors: kNotFound for a missing file; kInvalidArgument where it is no checkpoint of ours, or
// damaged: what its checksum does not fit, or only a part.
Result<Checkpoint> ReadCheckpoint(const std::string& path);

// Sets every parameter of the model. Errors: kInvalidArgument, naming the file, where a parameter
// is missing, left over, or of another shape; the model is then unchanged. Where stages of the
// model are on other hosts, what is left over may be theirs.
Status SetWeights(const Checkpoint& checkpoint, const LanguageModel& model);

// The optimizer goes on behind the checkpoint's step. Requires: its state is made, for parameters
// of the checkpoint's model. Errors: kInvalidArgument where the state of one is missing.
Status SetOptimizer(const Checkpoint& checkpoint, AdamW& optimizer);

}  // namespace penstock
