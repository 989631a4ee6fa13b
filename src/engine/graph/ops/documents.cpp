#include "graph/ops/documents.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

at::Tensor Starts(const at::Tensor& tokens, std::int64_t end) {
  TORCH_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong,
              "penstock::document_starts: tokens are int64 [batch, sequence]");
  const at::Tensor dense = tokens.contiguous();
  at::Tensor result = at::empty(dense.sizes(), at::kLong);
  const auto* token = dense.const_data_ptr<std::int64_t>();
  auto* to = result.mutable_data_ptr<std::int64_t>();
  for (std::int64_t sample = 0; sample < dense.size(0); ++sample) {
    std::int64_t start = 0;
    for (std::int64_t i = 0; i < dense.size(1); ++i) {
      *to++ = start;
      if (*token++ == end) start = i + 1;
    }
  }
  return result;
}

at::Tensor StartsShape(const at::Tensor& tokens, std::int64_t) {
  return at::empty(tokens.sizes(), tokens.options());
}

at::Tensor MaskShape(const at::Tensor& starts, std::int64_t first, at::ScalarType dtype) {
  const std::int64_t length = starts.size(1);
  return at::empty({starts.size(0), 1, length, first + length}, starts.options().dtype(dtype));
}

at::Tensor Mask(const at::Tensor& starts, std::int64_t first, at::ScalarType dtype) {
  TORCH_CHECK(starts.dim() == 2 && starts.scalar_type() == at::kLong,
              "penstock::document_mask: starts are int64 [batch, sequence]");
  at::Tensor mask = MaskShape(starts, first, dtype).fill_(-std::numeric_limits<double>::infinity());
  const at::Tensor dense = starts.contiguous();
  const auto* start = dense.const_data_ptr<std::int64_t>();
  const std::int64_t length = dense.size(1), keys = first + length;
  const auto item = static_cast<std::int64_t>(mask.element_size());
  auto* row = static_cast<std::byte*>(mask.mutable_data_ptr());
  for (std::int64_t i = 0; i < dense.numel(); ++i, row += keys * item) {
    const std::int64_t token = first + i % length;
    TORCH_CHECK(start[i] >= 0 && start[i] <= token, "penstock::document_mask: token ", token,
                " is in a document that starts at ", start[i]);
    // Zero has no bits in any floating-point type.
    std::fill(row + start[i] * item, row + (token + 1) * item, std::byte{0});
  }
  return mask;
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("document_starts(Tensor tokens, int end) -> Tensor");
  library.def("document_mask(Tensor starts, int first, ScalarType dtype) -> Tensor");
}
TORCH_LIBRARY_IMPL(penstock, CPU, library) {
  library.impl("document_starts", Starts);
  library.impl("document_mask", Mask);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  library.impl("document_starts", StartsShape);
  library.impl("document_mask", MaskShape);
}

}  // namespace

at::Tensor DocumentStarts(const at::Tensor& tokens, std::int64_t end) {
  static const auto op =
      FindOp("penstock::document_starts", "").typed<at::Tensor(const at::Tensor&, std::int64_t)>();
  return op.call(tokens, end);
}

at::Tensor DocumentMask(const at::Tensor& starts, std::int64_t first, at::ScalarType dtype) {
  static const auto op = FindOp("penstock::document_mask", "")
                             .typed<at::Tensor(const at::Tensor&, std::int64_t, at::ScalarType)>();
  return op.call(starts, first, dtype);
}

}  // namespace penstock
