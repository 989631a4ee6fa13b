// Files in the safetensors format: named tensors, and text beside them.
//
// Layout: 8 bytes, little-endian, length of the header; the header, JSON; the tensors' bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "base/result.h"

namespace penstock {

struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, at::Tensor> tensors;  // on the CPU, contiguous
};

// The file appears whole or not at all. Tensors may be strided; they are written contiguous.
Status WriteSafetensors(const std::string& path, const Safetensors& content);

// The tensors own their memory. Errors: kNotFound for a missing file; kInvalidArgument for what is
// no such file, or only a part of one.
Result<Safetensors> ReadSafetensors(const std::string& path);

}  // namespace penstock
