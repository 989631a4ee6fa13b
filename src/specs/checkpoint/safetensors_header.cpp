#include "checkpoint/safetensors_header.h"

#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "checkpoint/crc32.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr std::size_t kAlignment = 8;  // of the tensors' bytes; spaces pad the header
constexpr std::uint64_t kLongestHeader = 100'000'000;  // bytes, as in Hugging Face's reader
static_assert(std::endian::native == std::endian::little, "the format is little-endian");

struct DtypeSize {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kDtypeSizes = {
    DtypeSize{"F64", 8}, DtypeSize{"F32", 4},  DtypeSize{"F16", 2}, DtypeSize{"BF16", 2},
    DtypeSize{"I64", 8}, DtypeSize{"I32", 4},  DtypeSize{"I16", 2}, DtypeSize{"I8", 1},
    DtypeSize{"U8", 1},  DtypeSize{"BOOL", 1},
};

Result<HeaderTensor> ParseEntry(const json& entry, const std::string& what,
                                std::uint64_t data_bytes) {
  HeaderTensor tensor;
  PENSTOCK_TRY(tensor.dtype, TextMember(entry, "dtype", what));
  PENSTOCK_TRY(tensor.shape, CountsMember(entry, "shape", what));
  PENSTOCK_TRY(const std::vector<std::int64_t> offsets, CountsMember(entry, "data_offsets", what));
  if (offsets.size() != 2 || offsets[0] > offsets[1] ||
      static_cast<std::uint64_t>(offsets[1]) > data_bytes) {
    return InvalidArgument("{}: its bytes are not in the file", what);
  }
  tensor.begin = static_cast<std::uint64_t>(offsets[0]);
  tensor.end = static_cast<std::uint64_t>(offsets[1]);
  const auto size = BytesOfDtype(tensor.dtype);
  if (!size) return InvalidArgument("{}: its dtype {} is unknown", what, Quote(tensor.dtype));
  const auto elements = ElementsOf(tensor.shape, *size, data_bytes);
  if (!elements) return InvalidArgument("{}: its shape does not fit the file", what);
  if (*elements * *size != tensor.end - tensor.begin) {
    return InvalidArgument("{}: it has {} bytes, but its shape needs {}", what,
                           tensor.end - tensor.begin, *elements * *size);
  }
  return tensor;
}

Result<Metadata> ParseMetadata(const json& entry) {
  Metadata metadata;
  if (!entry.is_object()) return InvalidArgument("its metadata is not an object");
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return InvalidArgument("its metadata {} is not a text", Quote(key));
    if (key != kChecksumKey) metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

}  // namespace

std::optional<std::size_t> BytesOfDtype(std::string_view dtype) {
  for (const DtypeSize& known : kDtypeSizes) {
    if (known.name == dtype) return known.bytes;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> ElementsOf(std::span<const std::int64_t> shape,
                                        std::size_t element_bytes, std::uint64_t most_bytes) {
  for (const std::int64_t size : shape) {
    if (size == 0) return 0;
  }
  const std::uint64_t most = most_bytes / element_bytes;
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    // Divides, because the product may overflow.
    if (size < 0 || elements > most / static_cast<std::uint64_t>(size)) return std::nullopt;
    elements *= static_cast<std::uint64_t>(size);
  }
  return elements <= most ? std::optional(elements) : std::nullopt;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::uint64_t data_bytes) {
  PENSTOCK_TRY(const auto root, ParseStrictJson(json));
  SafetensorsHeader header;
  std::uint64_t left = data_bytes;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      PENSTOCK_TRY(header.metadata, ParseMetadata(entry));
      continue;
    }
    PENSTOCK_TRY(HeaderTensor tensor, ParseEntry(entry, "tensor " + Quote(name), data_bytes));
    if (tensor.end - tensor.begin > left) return InvalidArgument("its tensors overlap");
    left -= tensor.end - tensor.begin;
    header.tensors.emplace(name, std::move(tensor));
  }
  return header;
}

Result<std::uint64_t> HeaderLength(std::string_view start, std::uint64_t file_bytes) {
  std::uint64_t length = 0;
  if (start.size() >= kHeaderLengthBytes) {
    std::memcpy(&length, start.data(), kHeaderLengthBytes);
    if (length <= file_bytes - kHeaderLengthBytes && length <= kLongestHeader) return length;
  }
  return InvalidArgument("it is truncated or of another format");
}

SafetensorsLayout::SafetensorsLayout(const Metadata& metadata, std::vector<TensorEntry> entries)
    : entries_(std::move(entries)), begins_{0} {
  json header = {{"__metadata__", metadata}};
  header["__metadata__"][kChecksumKey] = kNoChecksum;
  for (const TensorEntry& entry : entries_) {
    const std::size_t begin = begins_.back();
    const std::size_t end = begin + entry.bytes;
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {begin, end}}};
    begins_.push_back(end);
  }
  header_ = header.dump();
  header_.append((kAlignment - header_.size() % kAlignment) % kAlignment, ' ');
}

std::string SafetensorsLayout::Head(std::uint32_t data_checksum) const {
  const std::uint64_t length = header_.size();
  std::string head(reinterpret_cast<const char*>(&length), kHeaderLengthBytes);
  std::string header = header_;
  SetOwnChecksum(header, CombineCrc32(Crc32(header_), data_checksum, begins_.back()));
  return head + header;
}

std::string SafetensorsLayout::Head(std::span<const std::uint32_t> checksums) const {
  std::uint32_t data = 0;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    data = CombineCrc32(data, checksums[i], entries_[i].bytes);
  }
  return Head(data);
}

}  // namespace penstock
