// Files in the safetensors format: named tensors and text metadata.
//
// Layout: the length of the header (8 bytes, little-endian), the header (JSON), and the tensors'
// bytes. Penstock adds the metadata entry "checksum": "crc32:" and 8 hexadecimal digits, computed
// over the header and the bytes with zeros in place of the digits. Other readers see it as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

struct Safetensors {
  std::map<std::string, std::string> metadata;  // without the checksum
  std::map<std::string, at::Tensor> tensors;    // on the CPU, contiguous
  bool verified = false;                        // after reading: whether it had a checksum
};

// A tensor of a file that has not been written yet.
struct TensorEntry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

// The layout of a file. It does not depend on the values of tensors.
class SafetensorsLayout {
 public:
  // Requires: entries are in the order of their names. Errors: kInvalidArgument for a dtype that
  // such files cannot contain.
  static Result<SafetensorsLayout> Make(const std::map<std::string, std::string>& metadata,
                                        std::vector<TensorEntry> entries);

  const std::vector<TensorEntry>& entries() const { return entries_; }
  std::size_t offset(std::size_t entry) const { return head_bytes() + begins_[entry]; }
  std::size_t file_bytes() const { return head_bytes() + begins_.back(); }
  // Returns the bytes before the tensors. Computes their checksum from those of the entries.
  std::string Head(std::span<const std::uint32_t> checksums) const;

 private:
  std::size_t head_bytes() const;

  std::string header_;  // with zeros for the checksum
  std::vector<TensorEntry> entries_;
  std::vector<std::size_t> begins_;  // by entry, relative to the end of the head; then their end
};

// Returns the checksum of an entry's bytes, as Head takes it.
std::uint32_t ChecksumOf(std::string_view bytes);

// Writes a file with its checksum. The file appears completely or not at all, and survives a crash
// of the machine. Tensors may be strided; they are written contiguously.
Status WriteSafetensors(const std::string& path, const Safetensors& content);

// Reads a file. The tensors own their memory. Errors: kNotFound for a missing file;
// kInvalidArgument if it is not such a file, is truncated, or does not match its checksum.
Result<Safetensors> ReadSafetensors(const std::string& path);

}  // namespace penstock
