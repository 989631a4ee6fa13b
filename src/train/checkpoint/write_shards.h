// Writes a checkpoint: the shards of all hosts, then the manifest that makes them a checkpoint.
#pragma once

#include <string>

#include "base/result.h"
#include "runtime/hosts/collectives.h"
#include "train/checkpoint/checkpoint.h"

namespace penstock {

// Creates the folder `path` and writes the state of all hosts to it. Called on all hosts, each with
// its own state; elements that several of them have are written once. Does nothing if the
// checkpoint exists. Requires: all hosts see the folder's parent, which exists, and no other run
// writes to it.
//
// A host only sends the names, ranges and checksums of its state. After all hosts have reported
// that their shards are on disk, host 0 writes the manifest under a temporary name and renames it.
// Errors, on all hosts: kInvalidArgument if no host has some element, or if the folder cannot be
// written; kUnavailable if the disk fails or host 0 does not see a shard; the reason of an abort.
// Whatever was written is then removed.
Status WriteShards(Collectives& hosts, const std::string& path, const CheckpointInfo& info,
                   const NamedState& own);

}  // namespace penstock
