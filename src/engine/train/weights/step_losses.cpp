#include "train/weights/step_losses.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/zeros.h>

namespace penstock {

StepLosses::StepLosses(std::size_t count, c10::Device device)
    : values_(at::zeros({static_cast<std::int64_t>(count)},
                        at::TensorOptions().dtype(at::kFloat).device(device))) {}

void StepLosses::Set(std::size_t index, float share, const at::Tensor& loss) {
  if (values_.is_cpu()) {
    values_.mutable_data_ptr<float>()[index] = share * *loss.const_data_ptr<float>();
    return;
  }
  at::Tensor value = values_.select(0, static_cast<std::int64_t>(index));
  at::mul_out(value, loss, at::Scalar(share));
}

std::span<const float> StepLosses::Read() const {
  if (!values_.is_cpu()) read_ = values_.to(at::kCPU);
  return {(values_.is_cpu() ? values_ : read_).const_data_ptr<float>(), size()};
}

}  // namespace penstock
