// Merges the weights of a checkpoint into one file.
#pragma once

#include <string>

#include "base/result.h"
#include "checkpoint/checkpoint_reader.h"

namespace penstock {

struct MergedWeights {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;  // of the file
};

// Writes the weights, without optimizer state, to a safetensors file: the model.safetensors that
// the run writes after the checkpoint's step. The file appears completely or not at all. Errors:
// kUnavailable if the checkpoint is damaged or the disk fails; kInvalidArgument if the file cannot
// be created.
Result<MergedWeights> MergeWeights(CheckpointReader& checkpoint, const std::string& file);

}  // namespace penstock
