// The checkpoints of a run: the folders RUN/checkpoints/step-N, after N optimizer steps (see
// manifest.h). Earlier versions of Penstock wrote files, RUN/checkpoints/step-N.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct StoredCheckpoint {
  std::int64_t step = 0;
  std::string path;
  // False for a folder without a manifest: its process ended before it was complete, or writes it
  // now. Readers ignore it.
  bool complete = true;
};

// `run` is the run's folder.
std::string CheckpointFolder(const std::string& run);
std::string CheckpointPath(const std::string& folder, std::int64_t step);

// Returns the complete checkpoints of a folder, in descending order of steps. Empty if there is no
// folder. Errors: kInvalidArgument if the folder exists but cannot be listed.
Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::string& folder);
// Returns all checkpoints, including unfinished ones.
Result<std::vector<StoredCheckpoint>> ListAllCheckpoints(const std::string& folder);

// Returns whether a file or folder of this name is a checkpoint of a run, complete or not.
bool IsCheckpointName(std::string_view name);
// Returns whether the path is a folder with a manifest.
bool IsCheckpointFolder(const std::string& path);

// Removes a checkpoint, complete or not. It stops to exist before its first file is removed.
// Removes no files that Penstock has not written, and nothing if it is a link, which the user has
// made. Ignores errors: what remains does no harm.
void RemoveCheckpoint(const std::string& path);

// Makes FOLDER/best a link to the checkpoint of `step`. Readers see either the earlier or the new
// one. Errors: kUnavailable.
Status LinkBest(const std::string& folder, std::int64_t step);
// Returns the step of the checkpoint that FOLDER/best refers to, or -1 if there is none.
std::int64_t BestStep(const std::string& folder);
// Returns the path of the link.
std::string BestPath(const std::string& folder);

// Keeps the best checkpoint, the one of step `newest`, the `keep` - 1 before it (all if 0), and all
// of later steps. Removes the others, and unfinished ones of killed processes. Requires: the newest
// is complete, and no other process writes to the folder.
void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep);

// Names of files in a run's folder that are not checkpoints.
struct SupersededFiles {
  std::vector<std::string> moved;
  std::vector<std::string> copied;
};

// Moves the run's checkpoints of more than `step` steps, with the link to the best one if that is
// among them, and then `files`, in their order, to RUN/superseded-K, with the first K that is free.
// Ignores files that do not exist. A run can resume from that folder as from a run's folder.
// Penstock never removes it. Returns the folder, or an empty string if there was nothing to move.
// Errors: kUnavailable if a file cannot be moved, and as ListCheckpoints.
Result<std::string> SetAside(const std::string& run, std::int64_t step,
                             const SupersededFiles& files);

// Returns the checkpoint that `path` refers to: for a run's folder, its model.safetensors or its
// newest checkpoint, whichever was written last; for a folder of checkpoints, the newest. Returns
// the path of a checkpoint or another file unchanged. Errors: kNotFound if a folder has no
// checkpoint.
Result<std::string> CheckpointAt(const std::string& path);

}  // namespace penstock
