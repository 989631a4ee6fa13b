// Writes one process's shard of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard_plan.h"

namespace penstock {

// What a process has written: its file, and the checksums of the blocks of each of its pieces, in
// the order of the plan.
struct WrittenShard {
  ManifestFile file;  // 0 bytes: the process has no pieces and no file
  std::vector<std::vector<std::uint32_t>> blocks;
};

// Returns the name of a piece within its shard: the tensor's name if the piece is the whole tensor.
std::string PieceKey(const std::string& name, const PlannedTensor& tensor,
                     const ChosenPiece& piece);

// Writes the pieces that the plan chooses from `process` to the shard `path`. `bytes` has the bytes
// of the pieces that the process offers. The file appears completely or not at all, and survives a
// crash of the machine. Errors: as WriteFileDurably.
Result<WrittenShard> WriteShard(const std::string& path, const Metadata& metadata,
                                const ShardPlan& plan, int process,
                                const std::vector<std::string_view>& bytes);

// Adds the files and tensors to a manifest. Requires: `shards` has the shards of all processes.
void AddShards(const ShardPlan& plan, const std::vector<WrittenShard>& shards, Manifest& manifest);

}  // namespace penstock
