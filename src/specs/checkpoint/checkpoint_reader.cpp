#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/files.h"
#include "base/index.h"
#include "base/text/quote.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr FileLimit kManifestFile = {std::size_t{1} << 30, "manifest"};

std::string_view TextOf(std::span<const char> bytes) { return {bytes.data(), bytes.size()}; }

tl::unexpected<Error> NotSafetensors(const std::string& path, const Error& error) {
  return InvalidArgument("{} is not a safetensors file: {}", path, error.message);
}

// Reads the header of a file, which begins with its length.
Result<std::string> ReadHeader(const ReadableFile& file) {
  std::string start(std::min<std::uint64_t>(kHeaderLengthBytes, file.size()), '\0');
  PENSTOCK_TRY_STATUS(file.ReadAt(0, start));
  const Result<std::uint64_t> length = HeaderLength(start, file.size());
  if (!length) return NotSafetensors(file.path(), length.error());
  std::string header(*length, '\0');
  PENSTOCK_TRY_STATUS(file.ReadAt(kHeaderLengthBytes, header));
  return header;
}

// Returns the checksum of bytes `begin` up to `end` after others, whose checksum is `before`.
Result<std::uint32_t> ChecksumOfRange(const ReadableFile& file, std::uint64_t begin,
                                      std::uint64_t end, std::uint32_t before) {
  std::string block;
  for (std::uint64_t at = begin; at < end; at += block.size()) {
    block.resize(std::min(kBlockBytes, end - at));
    PENSTOCK_TRY_STATUS(file.ReadAt(at, block));
    before = Crc32(block, before);
  }
  return before;
}

// Verifies the checksum that a file contains.
Status VerifyWholeFile(const ReadableFile& file, std::string_view header) {
  const std::size_t digits = FindOwnChecksum(header);
  if (digits == std::string_view::npos) return InvalidArgument("its checksum is missing");
  PENSTOCK_TRY(const std::uint32_t checksum,
               ChecksumOfRange(file, kHeaderLengthBytes + header.size(), file.size(),
                               OwnCrc32(header, digits)));
  const std::string computed = FormatCrc32(checksum);
  const std::string_view stored = header.substr(digits, computed.size());
  if (stored == computed) return {};
  return InvalidArgument("it is damaged: its checksum is {}, not {}", computed, Quote(stored));
}

// Describes the tensors of a file that was verified as a whole.
void DescribeFile(const SafetensorsHeader& header, const std::string& name, Manifest& manifest) {
  manifest.block_bytes = 0;
  for (const auto& [tensor, entry] : header.tensors) {
    ManifestTensor& described = manifest.tensors[tensor];
    described.dtype = entry.dtype;
    described.shape = entry.shape;
    const std::uint64_t elements = (entry.end - entry.begin) / *BytesOfDtype(entry.dtype);
    if (elements > 0) described.pieces.push_back({name, tensor, 0, elements, {}});
  }
}

std::uint64_t BytesOfPiece(const ManifestTensor& tensor, const ManifestPiece& piece) {
  return (piece.end - piece.begin) * *BytesOfDtype(tensor.dtype);
}

}  // namespace

Result<CheckpointReader> CheckpointReader::Open(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? OpenFolder(path) : OpenFile(path);
}

Result<CheckpointReader> CheckpointReader::OpenFile(const std::string& path) {
  CheckpointReader reader;
  reader.path_ = path;
  const std::string name = fs::path(path).filename().string();
  PENSTOCK_TRY(ReadableFile file, ReadableFile::Open(path));
  PENSTOCK_TRY(const std::string text, ReadHeader(file));
  const std::uint64_t data = kHeaderLengthBytes + text.size();
  const auto parse = [&]() -> Result<SafetensorsHeader> {
    PENSTOCK_TRY_STATUS(VerifyWholeFile(file, text));
    return ParseSafetensorsHeader(text, file.size() - data);
  };
  Result<SafetensorsHeader> header = parse();
  if (!header) return NotSafetensors(path, header.error());
  if (const Status read = ReadMetadata(header->metadata, reader.manifest_); !read) {
    return InvalidArgument("{} is not a checkpoint of a run: {}", path, read.error().line());
  }
  reader.manifest_.files[name].bytes = file.size();
  DescribeFile(*header, name, reader.manifest_);
  reader.shards_.emplace(name, Shard{std::move(file), *std::move(header), data});
  return reader;
}

Result<CheckpointReader> CheckpointReader::OpenFolder(const std::string& path) {
  CheckpointReader reader;
  reader.path_ = path;
  const std::string file = fmt::format("{}/{}", path, kManifestName);
  Result<std::string> text = ReadFile(file, kManifestFile);
  if (!text && text.error().code == ErrorCode::kNotFound) {
    return NotFound("{} is not a complete checkpoint: {}", path, text.error().line());
  }
  PENSTOCK_TRY(text, std::move(text));
  Result<Manifest> manifest = ParseManifest(*text);
  if (!manifest) {
    return InvalidArgument("{} is not a manifest: {}", file, manifest.error().line());
  }
  reader.manifest_ = *std::move(manifest);
  PENSTOCK_TRY_STATUS(reader.CheckSizes());
  return reader;
}

Status CheckpointReader::CheckSizes() const {
  for (const auto& [name, expected] : manifest_.files) {
    const std::string path = fmt::format("{}/{}", path_, name);
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(path, error);
    if (error)
      return InvalidArgument("{} is damaged: cannot read {}: {}", path_, path, error.message());
    if (bytes == expected.bytes) continue;
    return InvalidArgument("{} is damaged: {} has {} bytes, not {}", path_, path, bytes,
                           expected.bytes);
  }
  return {};
}

const ManifestTensor* CheckpointReader::Find(const std::string& name) const {
  const auto found = manifest_.tensors.find(name);
  return found == manifest_.tensors.end() ? nullptr : &found->second;
}

Result<CheckpointReader::Shard> CheckpointReader::OpenShard(const std::string& name) const {
  PENSTOCK_TRY(ReadableFile file, ReadableFile::Open(fmt::format("{}/{}", path_, name)));
  if (file.size() != manifest_.files.at(name).bytes) {
    return InvalidArgument("{} is damaged: it has {} bytes, not {}", file.path(), file.size(),
                           manifest_.files.at(name).bytes);
  }
  PENSTOCK_TRY(const std::string text, ReadHeader(file));
  const std::uint64_t data = kHeaderLengthBytes + text.size();
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(text, file.size() - data);
  if (!header) return NotSafetensors(file.path(), header.error());
  return Shard{std::move(file), *std::move(header), data};
}

Result<const CheckpointReader::Shard*> CheckpointReader::ShardOf(const std::string& name) {
  const auto found = shards_.find(name);
  if (found != shards_.end()) return &found->second;
  PENSTOCK_TRY(Shard shard, OpenShard(name));
  return &shards_.emplace(name, std::move(shard)).first->second;
}

Result<std::uint64_t> CheckpointReader::Locate(const std::string& name,
                                               const ManifestTensor& tensor,
                                               const ManifestPiece& piece,
                                               const Shard& shard) const {
  const auto entry = shard.header.tensors.find(piece.key);
  if (entry == shard.header.tensors.end()) {
    return InvalidArgument("{} is damaged: it does not contain {}", shard.file.path(), Quote(name));
  }
  const HeaderTensor& stored = entry->second;
  if (stored.dtype == tensor.dtype && stored.end - stored.begin == BytesOfPiece(tensor, piece)) {
    return shard.data + stored.begin;
  }
  return InvalidArgument("{} is damaged: {} has {} bytes of {}, but the manifest has {} of {}",
                         shard.file.path(), Quote(name), stored.end - stored.begin, stored.dtype,
                         BytesOfPiece(tensor, piece), tensor.dtype);
}

Status CheckpointReader::ReadPiece(const std::string& name, const ManifestPiece& piece,
                                   std::uint64_t begin, std::span<char> to) {
  const ManifestTensor& tensor = manifest_.tensors.at(name);
  PENSTOCK_TRY(const Shard* const shard, ShardOf(piece.file));
  PENSTOCK_TRY(const std::uint64_t offset, Locate(name, tensor, piece, *shard));
  if (manifest_.block_bytes == 0) {
    bytes_read_ += to.size();
    return shard->file.ReadAt(offset + begin, to);
  }
  const std::uint64_t piece_bytes = BytesOfPiece(tensor, piece);
  const std::uint64_t end = begin + to.size();
  for (std::uint64_t index = begin / manifest_.block_bytes; begin < end; ++index) {
    const std::uint64_t block_begin = index * manifest_.block_bytes;
    const std::uint64_t block_end = std::min(block_begin + manifest_.block_bytes, piece_bytes);
    const std::uint64_t needed = std::min(end, block_end) - begin;
    // A block that is needed as a whole is read in place.
    const bool whole = needed == block_end - block_begin;
    if (whole || block_piece_ != &piece || block_index_ != index) {
      block_piece_ = nullptr;
      if (!whole) block_.resize(block_end - block_begin);
      const std::span<char> block = whole ? to.first(needed) : std::span<char>(block_);
      PENSTOCK_TRY_STATUS(shard->file.ReadAt(offset + block_begin, block));
      bytes_read_ += block.size();
      const std::uint32_t checksum = Crc32(TextOf(block));
      if (checksum != piece.crc32[index]) {
        return InvalidArgument("{} is damaged: {} has a block with the checksum {}, not {}",
                               shard->file.path(), Quote(name), FormatCrc32(checksum),
                               FormatCrc32(piece.crc32[index]));
      }
      if (!whole) std::tie(block_piece_, block_index_) = std::pair(&piece, index);
    }
    if (!whole) {
      std::copy_n(block_.begin() + static_cast<std::ptrdiff_t>(begin - block_begin), needed,
                  to.begin());
    }
    to = to.subspan(needed);
    begin += needed;
  }
  return {};
}

Status CheckpointReader::Read(const std::string& name, const Layout& layout, std::span<char> to) {
  const ManifestTensor& tensor = manifest_.tensors.at(name);
  const std::size_t size = *BytesOfDtype(tensor.dtype);
  const auto count = static_cast<std::int64_t>(to.size() / size);
  PENSTOCK_CHECK(to.size() % size == 0 && layout.begin() + count <= layout.elements(),
                 "{} elements of {} from {} on", count, name, layout.begin());
  std::vector<Layout> layouts;
  for (const ManifestPiece& piece : tensor.pieces) layouts.push_back(tensor.LayoutOf(piece));
  Status status;
  layout.ForRuns(count, [&](std::int64_t at, std::int64_t own, std::int64_t run) {
    status = ReadRun(name, layouts, at, to.subspan(Index(own) * size, Index(run) * size));
    return status.has_value();
  });
  return status;
}

Status CheckpointReader::ReadRun(const std::string& name, std::span<const Layout> layouts,
                                 std::int64_t at, std::span<char> to) {
  const ManifestTensor& tensor = manifest_.tensors.at(name);
  const std::size_t size = *BytesOfDtype(tensor.dtype);
  Status status;
  for (std::size_t i = 0; i < layouts.size() && status; ++i) {
    const ManifestPiece& piece = tensor.pieces[i];
    const auto read = [&](std::int64_t begin, std::int64_t in_box, std::int64_t count) {
      const std::uint64_t first = std::max(Index(in_box), piece.begin);
      const std::uint64_t last = std::min(Index(in_box + count), piece.end);
      if (first >= last) return true;
      const std::size_t to_first = Index(begin - at) + first - Index(in_box);
      status = ReadPiece(name, piece, (first - piece.begin) * size,
                         to.subspan(to_first * size, (last - first) * size));
      return status.has_value();
    };
    layouts[i].ForRunsOfBox(at, static_cast<std::int64_t>(to.size() / size), read);
  }
  return status;
}

Status CheckpointReader::Verify() {
  if (manifest_.block_bytes == 0) return {};            // verified when it was opened
  std::map<std::string, std::vector<PieceRef>> pieces;  // by file
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const ManifestPiece& piece : tensor.pieces) {
      PENSTOCK_TRY(const Shard* const shard, ShardOf(piece.file));
      PENSTOCK_TRY(const std::uint64_t offset, Locate(name, tensor, piece, *shard));
      pieces[piece.file].push_back({offset, &name, &piece, BytesOfPiece(tensor, piece)});
    }
  }
  for (const auto& [name, file] : manifest_.files) {
    PENSTOCK_TRY_STATUS(VerifyFile(name, std::move(pieces[name])));
  }
  return {};
}

// Reads the file once: its checksum follows from the checksums of its header and its blocks.
Status CheckpointReader::VerifyFile(const std::string& name, std::vector<PieceRef> pieces) {
  PENSTOCK_TRY(const Shard* const shard, ShardOf(name));
  std::ranges::sort(pieces, {}, &PieceRef::offset);
  PENSTOCK_TRY(std::uint32_t checksum, ChecksumOfRange(shard->file, 0, shard->data, 0));
  std::uint64_t verified = shard->data;
  std::string block;
  for (const PieceRef& piece : pieces) {
    if (piece.offset != verified) break;
    for (std::uint64_t at = 0; at < piece.bytes; at += block.size()) {
      block.resize(std::min(manifest_.block_bytes, piece.bytes - at));
      PENSTOCK_TRY_STATUS(ReadPiece(*piece.name, *piece.piece, at, block));
      checksum = CombineCrc32(checksum, Crc32(block), block.size());
    }
    verified += piece.bytes;
  }
  if (verified != shard->file.size()) {
    return InvalidArgument("{} is damaged: its bytes from {} on belong to no tensor",
                           shard->file.path(), verified);
  }
  const std::uint32_t expected = manifest_.files.at(name).crc32;
  if (checksum == expected) return {};
  return InvalidArgument("{} is damaged: its checksum is {}, not {}", shard->file.path(),
                         FormatCrc32(checksum), FormatCrc32(expected));
}

}  // namespace penstock
