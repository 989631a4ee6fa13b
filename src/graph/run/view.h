// Creates views directly, without a dispatch.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// Returns a view that shares the memory of `source`, the tensor of the root.
at::Tensor MakeView(const at::Tensor& source, const TensorValue& view);
// Returns the start of the view in the storage, in elements of `item` bytes.
inline std::int64_t ViewStart(const at::Tensor& source, std::int64_t offset, std::int64_t item) {
  return source.storage_offset() * static_cast<std::int64_t>(source.element_size()) / item + offset;
}

}  // namespace penstock
