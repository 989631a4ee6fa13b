#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/index.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "penstock-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kBoxVersion = 2;                      // written if a piece has a box
constexpr std::uint64_t kBlockVersion = 3;                    // written if a box has blocks
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;  // per tensor; sums do not overflow

// Parses the whole text as a number of at least 0, in the form that MetadataOf writes.
template <class T>
bool ParseMetadataNumber(std::string_view text, T& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

Result<std::uint32_t> ChecksumFrom(const json& value, const std::string& what) {
  const auto checksum =
      value.is_string() ? ParseCrc32(value.get_ref<const std::string&>()) : std::nullopt;
  if (checksum) return *checksum;
  return InvalidArgument("{}: a CRC-32 is not 8 hexadecimal digits", what);
}

Status ParseFiles(const json& files, Manifest& manifest) {
  if (!files.is_object()) return InvalidArgument("its 'files' are not an object");
  for (const auto& [name, entry] : files.items()) {
    const std::string what = "file " + Quote(name);
    if (!IsPlainName(name)) return InvalidArgument("{}: its name is not a plain file name", what);
    ManifestFile& file = manifest.files[name];
    PENSTOCK_TRY(file.bytes, CountMember(entry, "bytes", what, kMostBytes));
    PENSTOCK_TRY(const json* const checksum, MemberOf(entry, "crc32", what));
    PENSTOCK_TRY(file.crc32, ChecksumFrom(*checksum, what));
  }
  return {};
}

Result<ManifestPiece> ParsePiece(const json& entry, const std::string& what) {
  ManifestPiece piece;
  PENSTOCK_TRY(piece.file, TextMember(entry, "file", what));
  PENSTOCK_TRY(piece.key, TextMember(entry, "key", what));
  PENSTOCK_TRY(piece.begin, CountMember(entry, "begin", what));
  PENSTOCK_TRY(piece.end, CountMember(entry, "end", what));
  PENSTOCK_TRY(const json* const checksums, MemberOf(entry, "crc32", what));
  if (!checksums->is_array()) return InvalidArgument("{}: 'crc32' is not a list", what);
  for (const json& checksum : *checksums) {
    PENSTOCK_TRY(piece.crc32.emplace_back(), ChecksumFrom(checksum, what));
  }
  if (!entry.contains("box")) return piece;
  PENSTOCK_TRY(const std::vector<std::int64_t> box, CountsMember(entry, "box", what));
  if (box.size() != 3 && box.size() != 4) {
    return InvalidArgument("{}: a 'box' does not have 3 or 4 numbers", what);
  }
  piece.box = Box{box[0], box[1], box[2], box.size() == 4 ? box[3] : 1};
  return piece;
}

// Follows the pieces of a tensor, which must be all of its elements.
class Coverage {
 public:
  explicit Coverage(const ManifestTensor& tensor) : tensor_(tensor) {}

  Status Add(const ManifestPiece& piece, const std::string& what) {
    if (!started_ || piece.box != box_) PENSTOCK_TRY_STATUS(Open(piece.box, what));
    if (piece.begin != next_ || piece.end <= piece.begin) {
      return InvalidArgument("{}: a piece has elements {} to {}, but the next one is {}", what,
                             piece.begin, piece.end, next_);
    }
    next_ = piece.end;
    return {};
  }

  Status Finish(const std::string& what) const {
    PENSTOCK_TRY_STATUS(Close(what));
    if (!box_ || next_index_ == SizeAlong(*box_)) return {};
    return InvalidArgument("{}: its boxes end at index {} of dimension {}", what, next_index_,
                           box_->dimension);
  }

 private:
  Status Open(const std::optional<Box>& box, const std::string& what) {
    if (started_) PENSTOCK_TRY_STATUS(Close(what));
    const bool follows = !started_ || (box && box_ && box->dimension == box_->dimension &&
                                       box->blocks == box_->blocks);
    const bool fits =
        !box || (Index(box->dimension) < tensor_.shape.size() && box->count > 0 &&
                 HasBlocks(*box) && box->first == next_index_ &&
                 box->count <= SizeAlong(*box) - box->first && Layout(tensor_.shape, *box).box());
    if (!follows || !fits) return InvalidArgument("{}: its boxes do not divide it", what);
    started_ = true;
    box_ = box;
    next_ = 0;
    if (box) next_index_ = box->first + box->count;
    return {};
  }

  bool HasBlocks(const Box& box) const {
    return box.blocks > 0 && tensor_.shape[Index(box.dimension)] % box.blocks == 0;
  }
  // Returns the indices of a block.
  std::int64_t SizeAlong(const Box& box) const {
    return tensor_.shape[Index(box.dimension)] / box.blocks;
  }

  // Checks that the box, or else the tensor, is complete.
  Status Close(const std::string& what) const {
    const Layout all = box_ ? Layout(tensor_.shape, *box_) : Layout(tensor_.shape);
    if (next_ == static_cast<std::uint64_t>(all.elements())) return {};
    return InvalidArgument("{}: its pieces have {} elements, but its shape needs {}", what, next_,
                           all.elements());
  }

  const ManifestTensor& tensor_;
  bool started_ = false;
  std::optional<Box> box_;
  std::uint64_t next_ = 0;       // the next element of the box, or else of the tensor
  std::int64_t next_index_ = 0;  // of the divided dimension
};

// Reads tensors and counts the bytes of each file that their pieces have not used yet.
class TensorReader {
 public:
  explicit TensorReader(Manifest& manifest) : manifest_(manifest) {
    for (const auto& [name, file] : manifest.files) left_[name] = file.bytes;
  }

  Status Add(const std::string& name, const json& entry) {
    const std::string what = "tensor " + Quote(name);
    ManifestTensor tensor;
    PENSTOCK_TRY(tensor.dtype, TextMember(entry, "dtype", what));
    PENSTOCK_TRY(tensor.shape, CountsMember(entry, "shape", what));
    const auto size = BytesOfDtype(tensor.dtype);
    if (!size) return InvalidArgument("{}: its dtype {} is unknown", what, Quote(tensor.dtype));
    const auto elements = ElementsOf(tensor.shape, *size, kMostBytes);
    if (!elements) return InvalidArgument("{}: its shape is too large", what);
    PENSTOCK_TRY(const json* const pieces, MemberOf(entry, "pieces", what));
    if (!pieces->is_array()) return InvalidArgument("{}: its 'pieces' are not a list", what);
    Coverage coverage(tensor);
    for (const json& piece : *pieces) {
      PENSTOCK_TRY(ManifestPiece parsed, ParsePiece(piece, what));
      PENSTOCK_TRY_STATUS(coverage.Add(parsed, what));
      PENSTOCK_TRY_STATUS(Check(parsed, *size, what));
      tensor.pieces.push_back(std::move(parsed));
    }
    PENSTOCK_TRY_STATUS(coverage.Finish(what));
    manifest_.tensors.emplace(name, std::move(tensor));
    return {};
  }

 private:
  Status Check(const ManifestPiece& piece, std::size_t element_bytes, const std::string& what) {
    const auto file = left_.find(piece.file);
    if (file == left_.end()) {
      return InvalidArgument("{}: a piece is in {}, which is not one of its files", what,
                             Quote(piece.file));
    }
    const std::uint64_t elements = piece.end - piece.begin;
    if (elements > file->second / element_bytes) {
      return InvalidArgument("{}: a piece does not fit into {}", what, Quote(piece.file));
    }
    file->second -= elements * element_bytes;
    const std::uint64_t blocks = BlocksOf(elements * element_bytes, manifest_.block_bytes);
    if (blocks == piece.crc32.size()) return {};
    return InvalidArgument("{}: a piece of {} blocks has {} checksums", what, blocks,
                           piece.crc32.size());
  }

  Manifest& manifest_;
  std::map<std::string, std::uint64_t> left_;  // bytes, by file
};

// Reads what was consumed, if the manifest says so.
Status ParseData(const json& root, Manifest& manifest) {
  const auto data = root.find("data");
  if (data == root.end()) return {};
  if (!data->is_array()) return InvalidArgument("its 'data' are not a list");
  for (const json& entry : *data) {
    ConsumedData& consumed = manifest.data.emplace_back();
    PENSTOCK_TRY(consumed.dataset, TextMember(entry, "dataset", "data"));
    PENSTOCK_TRY(consumed.samples, CountMember(entry, "samples", "data", kMostBytes));
    PENSTOCK_TRY(consumed.order, CountMember(entry, "order", "data", kMostBytes));
  }
  return {};
}

Status CheckVersion(const json& root) {
  PENSTOCK_TRY(const std::string format, TextMember(root, "format", "it"));
  if (format != kFormat) return InvalidArgument("its format is {}", Quote(format));
  PENSTOCK_TRY(const std::uint64_t version, CountMember(root, "version", "it"));
  if (version >= kVersion && version <= kBlockVersion) return {};
  return InvalidArgument("its version is {}, but this program reads versions {} to {}", version,
                         kVersion, kBlockVersion);
}

json ToJson(const ManifestTensor& tensor) {
  json pieces = json::array();
  for (const ManifestPiece& piece : tensor.pieces) {
    json checksums = json::array();
    for (const std::uint32_t checksum : piece.crc32) checksums.push_back(FormatCrc32(checksum));
    pieces.push_back({{"file", piece.file},
                      {"key", piece.key},
                      {"begin", piece.begin},
                      {"end", piece.end},
                      {"crc32", std::move(checksums)}});
    if (!piece.box) continue;
    json& box = pieces.back()["box"];
    box = {piece.box->dimension, piece.box->first, piece.box->count};
    if (piece.box->blocks > 1) box.push_back(piece.box->blocks);
  }
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
}

}  // namespace

std::uint64_t BlocksOf(std::uint64_t bytes, std::uint64_t block_bytes) {
  return block_bytes == 0 ? 0 : (bytes + block_bytes - 1) / block_bytes;
}

Metadata MetadataOf(const Manifest& manifest) {
  return {{"format", "pt"},
          {"step", std::to_string(manifest.step)},
          {"seconds", fmt::format("{}", manifest.seconds)},
          {"config", manifest.config}};
}

Status ReadMetadata(const Metadata& metadata, Manifest& manifest) {
  const auto text = [&](const char* key) -> Result<std::string> {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return InvalidArgument("its {} is missing", key);
    return found->second;
  };
  PENSTOCK_TRY(const std::string step, text("step"));
  PENSTOCK_TRY(const std::string seconds, text("seconds"));
  PENSTOCK_TRY(manifest.config, text("config"));
  if (!ParseMetadataNumber(step, manifest.step)) {
    return InvalidArgument("its step {} is not a number of steps", Quote(step));
  }
  if (!ParseMetadataNumber(seconds, manifest.seconds) || !std::isfinite(manifest.seconds)) {
    return InvalidArgument("its seconds {} are not a duration", Quote(seconds));
  }
  return {};
}

std::string FormatManifest(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"crc32", FormatCrc32(file.crc32)}};
  }
  json tensors = json::object();
  std::uint64_t version = kVersion;
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors[name] = ToJson(tensor);
    if (tensor.pieces.empty() || !tensor.pieces.front().box) continue;
    version =
        std::max(version, tensor.pieces.front().box->blocks > 1 ? kBlockVersion : kBoxVersion);
  }
  json root = {{"format", kFormat},         {"version", version},
               {"step", manifest.step},     {"seconds", manifest.seconds},
               {"config", manifest.config}, {"block_bytes", manifest.block_bytes},
               {"files", std::move(files)}, {"tensors", std::move(tensors)},
               {kChecksumKey, kNoChecksum}};
  for (const ConsumedData& each : manifest.data) {
    root["data"].push_back(
        {{"dataset", each.dataset}, {"samples", each.samples}, {"order", each.order}});
  }
  std::string text = root.dump();
  SetOwnChecksum(text, Crc32(text));
  return text;
}

Result<Manifest> ParseManifest(std::string_view text) {
  const std::size_t digits = FindOwnChecksum(text);
  if (digits == std::string_view::npos) {
    return InvalidArgument("it is truncated or of another format");
  }
  const std::string checksum = FormatCrc32(OwnCrc32(text, digits));
  if (text.substr(digits, checksum.size()) != checksum) {
    return InvalidArgument("it is damaged: its checksum is {}, not {}", checksum,
                           Quote(text.substr(digits, checksum.size())));
  }
  return ParseManifestContent(text);
}

Result<Manifest> ParseManifestContent(std::string_view text) {
  PENSTOCK_TRY(const json root, ParseStrictJson(text));
  PENSTOCK_TRY_STATUS(CheckVersion(root));
  Manifest manifest;
  PENSTOCK_TRY(const std::uint64_t step, CountMember(root, "step", "it"));
  manifest.step = static_cast<std::int64_t>(step);
  PENSTOCK_TRY(const json* const seconds, MemberOf(root, "seconds", "it"));
  if (!seconds->is_number() || seconds->get<double>() < 0) {
    return InvalidArgument("its seconds are not a duration");
  }
  manifest.seconds = seconds->get<double>();
  PENSTOCK_TRY(manifest.config, TextMember(root, "config", "it"));
  PENSTOCK_TRY(manifest.block_bytes, CountMember(root, "block_bytes", "it", kMostBytes));
  if (manifest.block_bytes == 0) return InvalidArgument("its 'block_bytes' are 0");
  PENSTOCK_TRY_STATUS(ParseData(root, manifest));
  PENSTOCK_TRY(const json* const files, MemberOf(root, "files", "it"));
  PENSTOCK_TRY_STATUS(ParseFiles(*files, manifest));
  PENSTOCK_TRY(const json* const tensors, MemberOf(root, "tensors", "it"));
  if (!tensors->is_object()) return InvalidArgument("its 'tensors' are not an object");
  TensorReader reader(manifest);
  for (const auto& [name, entry] : tensors->items()) {
    PENSTOCK_TRY_STATUS(reader.Add(name, entry));
  }
  return manifest;
}

}  // namespace penstock
