// Writes a checkpoint: the shards of all processes, then the manifest that makes them a checkpoint.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/processes/collectives.h"
#include "train/checkpoint/checkpoint.h"

namespace penstock {

// Creates the folder `path` and writes the state of all processes to it. Called on all processes,
// each with its own state; elements that several of them have are written once. Does nothing if the
// checkpoint exists. Requires: all processes see the folder's parent, which exists, and no other
// run writes to it.
//
// A process only sends the names, ranges and checksums of its state. After all processes have
// reported that their shards are on disk, process 0 writes the manifest under a temporary name and
// renames it. Errors, on all processes: kInvalidArgument if no process has some element, or if the
// folder cannot be written; kUnavailable if the disk fails or process 0 does not see a shard; the
// reason of an abort. Whatever was written is then removed.
Status WriteShards(Collectives& processes, const std::string& path, const CheckpointInfo& info,
                   const NamedState& own);

}  // namespace penstock
