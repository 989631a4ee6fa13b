#include "bindings/engine/last_batch.h"

#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

namespace penstock::python {

LastBatch::TensorKind::TensorKind(const at::Tensor& tensor)
    : sizes(tensor.sizes().vec()),
      dtype(tensor.scalar_type()),
      device(tensor.device()),
      layout(tensor.layout()),
      is_inference(tensor.is_inference()),
      requires_grad(tensor.requires_grad()) {}

bool LastBatch::TensorKind::Fits(const at::Tensor& tensor) const {
  return tensor.sizes().equals(sizes) && tensor.scalar_type() == dtype &&
         tensor.device() == device && tensor.layout() == layout &&
         tensor.is_inference() == is_inference && tensor.requires_grad() == requires_grad;
}

LastBatch::Autocast LastBatch::AutocastOfThread() const {
  return {at::autocast::is_autocast_enabled(device_.type()),
          at::autocast::get_autocast_dtype(device_.type())};
}

void LastBatch::Remember(const Batch& batch) {
  autocast_ = AutocastOfThread();
  kinds_.clear();
  for (const Tensors* tensors : {&batch.first, &batch.second}) {
    for (const at::Tensor& tensor : *tensors) kinds_.emplace_back(tensor);
  }
}

bool LastBatch::Fits(const nb::object& inputs, const nb::object& targets) const {
  if (c10::InferenceMode::is_enabled() || AutocastOfThread() != autocast_) return false;
  auto kind = kinds_.begin();
  for (const nb::object* given : {&inputs, &targets}) {
    if (given->is_none()) continue;
    if (kind == kinds_.end() || !THPVariable_CheckExact(given->ptr()) ||
        !(kind++)->Fits(THPVariable_Unpack(given->ptr()))) {
      return false;
    }
  }
  return kind == kinds_.end();
}

bool LastBatch::AllFit(const std::vector<Batch>& batches) const {
  return std::ranges::all_of(batches, [&](const Batch& batch) {
    auto kind = kinds_.begin();
    const auto fits = [&](const at::Tensor& tensor) {
      return kind != kinds_.end() && (kind++)->Fits(tensor);
    };
    return std::ranges::all_of(batch.first, fits) && std::ranges::all_of(batch.second, fits) &&
           kind == kinds_.end();
  });
}

bool LastBatch::IsLike(const nb::object& inputs, const nb::object& targets) const {
  return Fits(inputs, targets) &&
         std::ranges::all_of(watches_, [](const auto& watch) { return watch->IsUnchanged(); });
}

}  // namespace penstock::python
