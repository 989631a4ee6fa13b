// Files in the safetensors format as tensors (see checkpoint/safetensors_header.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/safetensors_header.h"

namespace penstock {

struct Safetensors {
  Metadata metadata;                          // without the checksum
  std::map<std::string, at::Tensor> tensors;  // on the CPU, contiguous
  bool verified = false;                      // after reading: whether it had a checksum
};

// Returns the name of a dtype in such files. Errors: kInvalidArgument for one that they cannot
// contain.
Result<std::string> DtypeName(c10::ScalarType type);
// Requires: BytesOfDtype knows the name.
c10::ScalarType DtypeNamed(std::string_view name);

// Returns the bytes of a contiguous tensor on the CPU.
std::string_view RawBytes(const at::Tensor& tensor);

// Writes a file with its checksum. The file appears completely or not at all, and survives a crash
// of the machine. Tensors may be strided; they are written contiguously.
Status WriteSafetensors(const std::string& path, const Safetensors& content);

// Reads a file. The tensors own their memory. Errors: kNotFound for a missing file;
// kInvalidArgument if it is not such a file, is truncated, or does not match its checksum.
Result<Safetensors> ReadSafetensors(const std::string& path);

}  // namespace penstock
