// Views made straight from a value's place, without a dispatch.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// `source` is the root's tensor; the result shares its memory.
at::Tensor MakeView(const at::Tensor& source, const TensorValue& view);
// Where the view starts in the storage, in elements of `item` bytes.
inline std::int64_t ViewStart(const at::Tensor& source, std::int64_t offset, std::int64_t item) {
  return source.storage_offset() * static_cast<std::int64_t>(source.element_size()) / item + offset;
}

}  // namespace penstock
