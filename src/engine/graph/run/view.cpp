#include "graph/run/view.h"

namespace penstock {

at::Tensor MakeView(const at::Tensor& source, const TensorValue& view) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(view.type.dtype));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(source.storage()), source.key_set(),
      c10::scalarTypeToTypeMeta(view.type.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(view.type.sizes, view.type.strides,
                                                      ViewStart(source, view.view_offset, item));
  return tensor;
}

}  // namespace penstock
