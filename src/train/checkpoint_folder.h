// A run's checkpoints: RUN/checkpoints/step-N.safetensors, N optimizer steps done. No torch here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

struct StoredCheckpoint {
  std::int64_t step = 0;
  std::string path;
};

// `run` is the run's folder.
std::string CheckpointFolder(const std::string& run);
std::string CheckpointPath(const std::string& folder, std::int64_t step);

// The checkpoints of a folder, most steps first. Empty where there is no folder.
std::vector<StoredCheckpoint> ListCheckpoints(const std::string& folder);

// Keeps the checkpoint of `newest` and the `keep` - 1 before it (all for 0). What has more steps is
// of a run that was abandoned, and goes with the others; so does what a killed process left.
// Requires: the newest is whole, and nobody else writes to the folder.
void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep);

// The one file that `path` stands for, see ReadCheckpoint. A file's path is its own.
// Errors: kNotFound where a folder holds none.
Result<std::string> CheckpointFileOf(const std::string& path);

}  // namespace penstock
