// The manifest of a checkpoint: its files, and the elements of tensors that each file contains. A
// checkpoint is a folder with shards (safetensors files) and its manifest, manifest.json, which is
// written last: a folder without it is not a checkpoint.
//
// A tensor is in one piece or in several pieces of different shards. Each piece is a range of the
// elements of the flattened tensor, or of a box of it (checkpoint/layout.h). Tensors are addressed
// by their names in the whole model, so a checkpoint does not depend on the stages, ranks and
// processes that wrote it.
//
// Each piece has a CRC-32 for every kBlockBytes of its bytes. So a reader that needs only a range
// of a piece reads and verifies only the blocks that contain it. The manifest contains a CRC-32 of
// itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"
#include "checkpoint/safetensors_header.h"

namespace penstock {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 20;

// The start of the names of optimizer state. Other tensors are weights.
inline constexpr std::string_view kOptimizerPrefix = "optimizer.";

struct ManifestFile {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;  // of the whole file

  bool operator==(const ManifestFile&) const = default;
};

struct ManifestPiece {
  std::string file;                  // in the checkpoint's folder
  std::string key;                   // the tensor's name in that file
  std::uint64_t begin = 0, end = 0;  // elements of the box, or else of the flattened tensor
  std::vector<std::uint32_t> crc32;  // by block; see Manifest::block_bytes
  std::optional<Box> box = {};

  bool operator==(const ManifestPiece&) const = default;
};

struct ManifestTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  // Together they are the whole tensor: box by box along one dimension, and the ranges of a box in
  // their order.
  std::vector<ManifestPiece> pieces;

  std::uint64_t elements() const { return static_cast<std::uint64_t>(Layout(shape).elements()); }
  Layout LayoutOf(const ManifestPiece& piece) const {
    return piece.box ? Layout(shape, *piece.box) : Layout(shape);
  }
  bool operator==(const ManifestTensor&) const = default;
};

// What a run has consumed of one dataset. A run that resumes continues with the next sample,
// whatever its batch size and its other datasets.
struct ConsumedData {
  std::string dataset;        // a digest of its tokens
  std::uint64_t samples = 0;  // in the order of its epochs
  std::uint64_t order = 0;    // the number by which the order of its samples is chosen

  bool operator==(const ConsumedData&) const = default;
};

struct Manifest {
  std::int64_t step = 0;  // optimizer steps done
  double seconds = 0;     // of training until then
  std::string config;     // YAML
  // Empty for checkpoints of earlier versions, and where each step draws its samples at random.
  std::vector<ConsumedData> data;
  // The bytes per checksum. 0: pieces have no checksums, because their file was verified as a
  // whole.
  std::uint64_t block_bytes = kBlockBytes;
  std::map<std::string, ManifestFile> files;
  std::map<std::string, ManifestTensor> tensors;

  bool operator==(const Manifest&) const = default;
};

// Returns the number of blocks of a piece of `bytes` bytes.
std::uint64_t BlocksOf(std::uint64_t bytes, std::uint64_t block_bytes);

// Returns the metadata that every file of a checkpoint contains, and model.safetensors.
Metadata MetadataOf(const Manifest& manifest);
// Sets the step, the seconds and the configuration. Errors: kInvalidArgument if one is missing.
Status ReadMetadata(const Metadata& metadata, Manifest& manifest);

std::string FormatManifest(const Manifest& manifest);

// Parses a manifest and verifies its checksum. The pieces of the result are all elements of their
// tensors, their files are files of the manifest without a path, and the pieces of a file do not
// have more bytes than the file. Errors: kInvalidArgument, without the name of the file.
Result<Manifest> ParseManifest(std::string_view text);
// Parses a manifest without verifying its checksum.
Result<Manifest> ParseManifestContent(std::string_view text);

}  // namespace penstock
