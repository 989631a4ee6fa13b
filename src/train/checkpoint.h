// Checkpoints in the safetensors format: parameters by their names in the whole model, so that a
// model cut in any way reads what another cut wrote; the step and the configuration as metadata.
//
// Layout: 8 bytes, little-endian, length of the header; the header, JSON; the tensors' bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "train/config.h"
#include "train/language_model.h"

namespace penstock {

struct CheckpointInfo {
  std::int64_t step = 0;  // optimizer steps done
  TrainConfig config;
};

// The file appears whole or not at all.
Status SaveCheckpoint(const LanguageModel& model, const CheckpointInfo& info,
                      const std::string& path);

// `path` is the file, or a run's folder that holds model.safetensors.
// Errors: kNotFound for a missing file; kInvalidArgument where it is no checkpoint of ours.
Result<CheckpointInfo> ReadCheckpointInfo(const std::string& path);

// Sets every parameter of the model. Errors as above, and kInvalidArgument where a parameter is
// missing, left over, or of another shape; the model is then unchanged.
Status LoadCheckpoint(const std::string& path, LanguageModel& model);

}  // namespace penstock
