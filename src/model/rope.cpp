#include "model/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

#include <numbers>

namespace penstock {
namespace {

// Returns the scaled frequencies, in radians per token.
at::Tensor Scaled(const at::Tensor& frequencies, const RopeScaling& scaling) {
  if (scaling.type == "linear") return frequencies / scaling.factor;
  if (scaling.type != "llama3") return frequencies;
  const double low = scaling.low_frequency_factor, high = scaling.high_frequency_factor;
  const at::Tensor periods =
      frequencies * (static_cast<double>(scaling.original_sequence) / (2 * std::numbers::pi));
  const at::Tensor kept = ((periods - low) / (high - low)).clamp(0, 1);
  return (1 - kept) * frequencies / scaling.factor + kept * frequencies;
}

}  // namespace

RotaryTable RotaryTable::Make(std::int64_t sequence, std::int64_t head_dim, double theta,
                              const RopeScaling& scaling) {
  const auto real = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor exponent = at::arange(0, head_dim, 2, real) / static_cast<double>(head_dim);
  const at::Tensor frequency = Scaled(at::pow(theta, -exponent), scaling);    // [E/2]
  const at::Tensor angle = at::outer(at::arange(sequence, real), frequency);  // [S, E/2]
  const at::Tensor cos = angle.cos(), sin = angle.sin();
  return {at::cat({cos, cos}, -1).to(at::kFloat), at::cat({-sin, sin}, -1).to(at::kFloat)};
}

at::Tensor RotaryTable::Rotate(const at::Tensor& input, std::int64_t start) const {
  const std::int64_t length = input.size(-2), half = input.size(-1) / 2;
  const at::Tensor swapped = at::cat({input.narrow(-1, half, half), input.narrow(-1, 0, half)}, -1);
  const at::Tensor rotated =
      input * cos.narrow(0, start, length) + swapped * sin.narrow(0, start, length);
  return rotated.to(input.scalar_type());
}

}  // namespace penstock
