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
// Errors: kInvalidArgument where the folder is there but cannot be listed.
Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::string& folder);

// Keeps the checkpoint of `newest` and the `keep` - 1 before it (all for 0), and all of more steps.
// Removes the others, and the unfinished files that a killed process left.
// Requires: the newest is whole, and nobody else writes to the folder.
void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep);

// Moves the run's checkpoints of more than `step` steps to RUN/superseded-K, with the first K that
// is free, and a copy of metrics.jsonl with them: a folder that can be resumed like a run's.
// Nothing removes it. Returns that folder; empty where there was nothing to move. Errors:
// kUnavailable where a file cannot be moved, and as ListCheckpoints.
Result<std::string> SetAsideCheckpoints(const std::string& run, std::int64_t step);

// The one file that `path` stands for, see ReadCheckpoint. A file's path is its own.
// Errors: kNotFound where a folder holds none.
Result<std::string> CheckpointFileOf(const std::string& path);

}  // namespace penstock
