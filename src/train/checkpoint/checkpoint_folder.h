// The checkpoints of a run: RUN/checkpoints/step-N.safetensors, after N optimizer steps. No torch
// here.
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

// Returns the checkpoints of a folder, in descending order of steps. Empty if there is no folder.
// Errors: kInvalidArgument if the folder exists but cannot be listed.
Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::string& folder);

// Keeps the checkpoint of `newest`, the `keep` - 1 before it (all if 0), and those of later steps.
// Removes the others, and unfinished files of killed processes.
// Requires: the newest is complete, and no other process writes to the folder.
void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep);

// Moves the run's checkpoints of more than `step` steps to RUN/superseded-K, with the first free K,
// together with a copy of metrics.jsonl. A run can resume from that folder as from a run's folder.
// Penstock never removes it. Returns the folder, or an empty string if there was nothing to move.
// Errors: kUnavailable if a file cannot be moved, and as ListCheckpoints.
Result<std::string> SetAsideCheckpoints(const std::string& run, std::int64_t step);

// Returns the file that `path` refers to, see ReadCheckpoint. Returns the path of a file unchanged.
// Errors: kNotFound if a folder has no checkpoint.
Result<std::string> CheckpointFileOf(const std::string& path);

}  // namespace penstock
