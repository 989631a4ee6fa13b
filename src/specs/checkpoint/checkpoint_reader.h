// CheckpointReader: reads any layout of any tensor of a checkpoint, and verifies what it reads.
//
// A checkpoint is a folder (manifest.h) or one safetensors file: model.safetensors, or
// step-N.safetensors of earlier versions of Penstock. A file is verified as a whole when it is
// opened, a folder piece by piece while it is read: nothing else of it is read.
// Not thread-safe.
//
// Errors: kInvalidArgument for a damaged checkpoint, kNotFound for a missing one. They name the
// file and the tensor.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/readable_file.h"

namespace penstock {

class CheckpointReader {
 public:
  // Reads the manifest of a folder and verifies that its files exist and have the right sizes.
  static Result<CheckpointReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // Returns null if there is no such tensor.
  const ManifestTensor* Find(const std::string& name) const;

  // Fills `to` with the first elements of a layout of the tensor. Requires: the tensor exists and
  // has them. After an error, the content of `to` is unspecified.
  Status Read(const std::string& name, const Layout& layout, std::span<char> to);

  // Verifies every byte of the checkpoint.
  Status Verify();

  // Returns the bytes of tensors that were read until now.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  struct Shard {
    ReadableFile file;
    SafetensorsHeader header;
    std::uint64_t data = 0;  // offset of the first tensor
  };

  struct PieceRef {
    std::uint64_t offset;  // in its file
    const std::string* name;
    const ManifestPiece* piece;
    std::uint64_t bytes;
  };

  static Result<CheckpointReader> OpenFile(const std::string& path);
  static Result<CheckpointReader> OpenFolder(const std::string& path);
  Status CheckSizes() const;
  Result<const Shard*> ShardOf(const std::string& name);
  Result<Shard> OpenShard(const std::string& name) const;
  // Returns the offset of a piece in its file.
  Result<std::uint64_t> Locate(const std::string& name, const ManifestTensor& tensor,
                               const ManifestPiece& piece, const Shard& shard) const;
  // Reads consecutive elements of the flattened tensor. `layouts` are those of its pieces.
  Status ReadRun(const std::string& name, std::span<const Layout> layouts, std::int64_t at,
                 std::span<char> to);
  // Reads the bytes of a piece from `begin` on.
  Status ReadPiece(const std::string& name, const ManifestPiece& piece, std::uint64_t begin,
                   std::span<char> to);
  Status VerifyFile(const std::string& name, std::vector<PieceRef> pieces);

  std::string path_;
  Manifest manifest_;
  std::map<std::string, Shard> shards_;  // that were opened, by name
  // The last block of which only a part was needed, because the next part may be needed next.
  std::string block_;
  const ManifestPiece* block_piece_ = nullptr;
  std::uint64_t block_index_ = 0;
  std::uint64_t bytes_read_ = 0;
};

}  // namespace penstock
