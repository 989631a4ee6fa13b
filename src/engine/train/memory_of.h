// The memory of a tensor as bytes. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace penstock {

// Requires: the tensor is dense.
inline std::span<std::byte> MemoryOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace penstock
