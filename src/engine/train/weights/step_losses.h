// StepLosses: the losses of a stage's microbatches. Private to train/. On a device, they stay there
// until the host reads them, after the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace penstock {

class StepLosses {
 public:
  StepLosses(std::size_t count, c10::Device device);

  std::size_t size() const { return static_cast<std::size_t>(values_.numel()); }
  void Clear() { values_.zero_(); }
  // Sets a loss to `share` times an fp32 scalar on the device.
  void Set(std::size_t index, float share, const at::Tensor& loss);
  // Sets all, from as many fp32 numbers on the device.
  void SetAll(const at::Tensor& values) { values_.copy_(values); }

  // fp32, on the device.
  const at::Tensor& values() const { return values_; }
  // Waits for the device. Valid until the next call, or on a CPU, as long as the object.
  std::span<const float> Read() const;

 private:
  at::Tensor values_;
  mutable at::Tensor read_;  // the last copy on the host; undefined on a CPU
};

}  // namespace penstock
