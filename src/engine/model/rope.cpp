#include "model/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock {
namespace {

// Returns the index of the frequency that turns this often in the original sequence.
double IndexOfTurns(double turns, std::int64_t head_dim, double theta, const RopeScaling& scaling) {
  const double longest =
      static_cast<double>(scaling.original_sequence) / (turns * 2 * std::numbers::pi);
  return static_cast<double>(head_dim) * std::log(longest) / (2 * std::log(theta));
}

at::Tensor ScaledByYarn(const at::Tensor& frequencies, double theta, const RopeScaling& scaling) {
  const std::int64_t head_dim = 2 * frequencies.size(0);
  const auto index = [&](double turns) { return IndexOfTurns(turns, head_dim, theta, scaling); };
  const double first = std::max(std::floor(index(scaling.fast_turns)), 0.0);
  const double last =
      std::min(std::ceil(index(scaling.slow_turns)), static_cast<double>(head_dim - 1));
  const double width = first == last ? 0.001 : last - first;
  const at::Tensor ramp =
      ((at::arange(head_dim / 2, frequencies.options()) - first) / width).clamp(0, 1);
  return ramp * frequencies / scaling.factor + (1 - ramp) * frequencies;
}

// Returns the scaled frequencies, in radians per token.
at::Tensor Scaled(const at::Tensor& frequencies, double theta, const RopeScaling& scaling) {
  if (scaling.type == "linear") return frequencies / scaling.factor;
  if (scaling.type == "yarn") return ScaledByYarn(frequencies, theta, scaling);
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
  const at::Tensor frequency = Scaled(at::pow(theta, -exponent), theta, scaling);  // [E/2]
  const at::Tensor angle = at::outer(at::arange(sequence, real), frequency);       // [S, E/2]
  const double scale = scaling.MagnitudeScale();
  const at::Tensor cos = angle.cos() * scale, sin = angle.sin() * scale;
  return {at::cat({cos, cos}, -1).to(at::kFloat), at::cat({-sin, sin}, -1).to(at::kFloat)};
}

RotaryTable RotaryTable::At(const at::Tensor& positions) const {
  return {at::embedding(cos, positions).unsqueeze(1), at::embedding(sin, positions).unsqueeze(1)};
}

at::Tensor RotaryTable::Rotate(const at::Tensor& input) const {
  const std::int64_t half = input.size(-1) / 2;
  const at::Tensor swapped = at::cat({input.narrow(-1, half, half), input.narrow(-1, 0, half)}, -1);
  return (input * cos + swapped * sin).to(input.scalar_type());
}

}  // namespace penstock
