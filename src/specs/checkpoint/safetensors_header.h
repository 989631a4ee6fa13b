// The header of files in the safetensors format: named tensors and text metadata.
//
// Layout: the length of the header (8 bytes, little-endian), the header (JSON), and the tensors'
// bytes. Penstock adds the metadata entry "checksum": "crc32:" and 8 hexadecimal digits, computed
// over the header and the bytes with zeros in place of the digits. Other readers see it as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

using Metadata = std::map<std::string, std::string>;

// The length at the start of a file, in bytes.
inline constexpr std::size_t kHeaderLengthBytes = 8;

// Returns the size of an element: 4 for "F32". Empty for an unknown dtype.
std::optional<std::size_t> BytesOfDtype(std::string_view dtype);

// Returns the number of elements. Empty if a size is negative or the number of bytes exceeds
// `most_bytes`.
std::optional<std::uint64_t> ElementsOf(std::span<const std::int64_t> shape,
                                        std::size_t element_bytes, std::uint64_t most_bytes);

struct HeaderTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // of its bytes, relative to the end of the header
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  Metadata metadata;  // without the checksum
  std::map<std::string, HeaderTensor> tensors;
};

// Parses the JSON. `data_bytes` is the number of bytes after it. All tensors of the result lie
// within these bytes, do not have more bytes than them together, and match their shapes. Errors:
// kInvalidArgument, without the name of the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::uint64_t data_bytes);

// Returns the length of the header of a file of `file_bytes` bytes that begins with `start`.
// Errors: kInvalidArgument if there is no such file.
Result<std::uint64_t> HeaderLength(std::string_view start, std::uint64_t file_bytes);

// A tensor of a file that has not been written yet.
struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

// The layout of a file. It does not depend on the values of tensors.
class SafetensorsLayout {
 public:
  SafetensorsLayout(const Metadata& metadata, std::vector<TensorEntry> entries);

  const std::vector<TensorEntry>& entries() const { return entries_; }
  std::size_t offset(std::size_t entry) const { return head_bytes() + begins_[entry]; }
  std::size_t file_bytes() const { return head_bytes() + begins_.back(); }
  std::size_t head_bytes() const { return kHeaderLengthBytes + header_.size(); }
  // Returns the bytes before the tensors. `data_checksum` is the CRC-32 of all bytes after them.
  std::string Head(std::uint32_t data_checksum) const;
  // Returns the head from the checksums of the entries.
  std::string Head(std::span<const std::uint32_t> checksums) const;

 private:
  std::string header_;  // with zeros for the checksum
  std::vector<TensorEntry> entries_;
  std::vector<std::size_t> begins_;  // by entry, relative to the end of the head; then their end
};

}  // namespace penstock
