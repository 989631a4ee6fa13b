// Files in the safetensors format: named tensors, and text beside them.
//
// Layout: 8 bytes, little-endian, length of the header; the header, JSON; the tensors' bytes. Of
// our own: the metadata's "checksum", "crc32:" and 8 hexadecimal digits, of header and bytes with
// zeros for the digits. Other readers see it as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "base/result.h"

namespace penstock {

struct Safetensors {
  std::map<std::string, std::string> metadata;  // without the checksum
  std::map<std::string, at::Tensor> tensors;    // on the CPU, contiguous
  bool verified = false;                        // read: it had a checksum
};

// The file appears whole or not at all, with its checksum, and outlasts a crash of the machine.
// Tensors may be strided; they are written contiguous.
Status WriteSafetensors(const std::string& path, const Safetensors& content);

// The tensors own their memory. Errors: kNotFound for a missing file; kInvalidArgument for what is
// no such file, only a part of one, or not what its checksum says.
Result<Safetensors> ReadSafetensors(const std::string& path);

}  // namespace penstock
