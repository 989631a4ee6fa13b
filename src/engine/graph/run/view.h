// Creates views without the dispatcher.
#pragma once

#include "graph/ir/ir.h"

namespace penstock {

// Returns the view. `source` is the tensor of its root, whose memory it shares.
at::Tensor MakeView(const at::Tensor& source, const TensorValue& view);
// Returns the storage offset of a view with this offset, in elements of `item` bytes.
inline std::int64_t ViewStart(const at::Tensor& source, std::int64_t offset, std::int64_t item) {
  return source.storage_offset() * static_cast<std::int64_t>(source.element_size()) / item + offset;
}

}  // namespace penstock
