#include "checkpoint/shard.h"

#include <algorithm>

#include "base/files.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

std::vector<std::uint32_t> ChecksumsOfBlocks(std::string_view bytes) {
  std::vector<std::uint32_t> checksums;
  for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    checksums.push_back(Crc32(bytes.substr(at, kBlockBytes)));
  }
  return checksums;
}

std::uint32_t CombineBlocks(const std::vector<std::uint32_t>& blocks, std::uint64_t bytes) {
  std::uint32_t checksum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    checksum = CombineCrc32(checksum, blocks[i], std::min(kBlockBytes, bytes - i * kBlockBytes));
  }
  return checksum;
}

bool IsWhole(const PlannedTensor& tensor) { return tensor.pieces.size() == 1; }

}  // namespace

std::string PieceKey(const std::string& name, const PlannedTensor& tensor,
                     const ChosenPiece& piece) {
  if (IsWhole(tensor)) return name;
  if (!piece.box) return fmt::format("{}[{}:{}]", name, piece.begin, piece.end);
  return fmt::format("{}[{} {} + {}][{}:{}]", name, piece.box->dimension, piece.box->first,
                     piece.box->count, piece.begin, piece.end);
}

Result<WrittenShard> WriteShard(const std::string& path, const Metadata& metadata,
                                const ShardPlan& plan, int process,
                                const std::vector<std::string_view>& bytes) {
  WrittenShard written;
  std::vector<TensorEntry> entries;
  std::vector<std::uint32_t> checksums;
  std::vector<std::string_view> parts(1);  // the first one is the head
  for (const auto& [name, tensor] : plan) {
    const std::size_t size = *BytesOfDtype(tensor.dtype);
    for (const ChosenPiece& piece : tensor.pieces) {
      if (piece.process != process) continue;
      const std::uint64_t elements = piece.end - piece.begin;
      std::string_view part = bytes[piece.offered];
      part = part.substr((piece.begin - piece.offered_begin) * size, elements * size);
      const std::vector<std::int64_t> range = {static_cast<std::int64_t>(elements)};
      entries.push_back({PieceKey(name, tensor, piece), tensor.dtype,
                         IsWhole(tensor) ? tensor.shape : range, part.size()});
      written.blocks.push_back(ChecksumsOfBlocks(part));
      checksums.push_back(CombineBlocks(written.blocks.back(), part.size()));
      parts.push_back(part);
    }
  }
  if (entries.empty()) return written;
  const SafetensorsLayout layout(metadata, std::move(entries));
  const std::string head = layout.Head(checksums);
  parts[0] = head;
  PENSTOCK_TRY_STATUS(WriteFileDurably(path, parts));
  written.file.bytes = layout.file_bytes();
  written.file.crc32 = Crc32(head);
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    written.file.crc32 = CombineCrc32(written.file.crc32, checksums[i], parts[i + 1].size());
  }
  return written;
}

void AddShards(const ShardPlan& plan, const std::vector<WrittenShard>& shards, Manifest& manifest) {
  const int processes = static_cast<int>(shards.size());
  for (int process = 0; process < processes; ++process) {
    if (shards[process].file.bytes > 0)
      manifest.files[ShardName(process, processes)] = shards[process].file;
  }
  std::vector<std::size_t> next(shards.size());  // by process: its pieces so far
  for (const auto& [name, planned] : plan) {
    ManifestTensor& tensor = manifest.tensors[name];
    tensor.dtype = planned.dtype;
    tensor.shape = planned.shape;
    for (const ChosenPiece& piece : planned.pieces) {
      const auto& blocks = shards[piece.process].blocks;
      PENSTOCK_CHECK(next[piece.process] < blocks.size(), "process {} wrote too few pieces",
                     piece.process);
      tensor.pieces.push_back({ShardName(piece.process, processes), PieceKey(name, planned, piece),
                               piece.begin, piece.end, blocks[next[piece.process]++], piece.box});
    }
  }
}

}  // namespace penstock
