#include "train/stage/gradient_norm.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <array>

#include "base/result.h"

namespace penstock {

namespace {

template <class Element>
double SquaredNormOf(const at::Tensor& tensor) {
  // Independent sums let the compiler vectorize the loop.
  constexpr std::size_t kSums = 16;
  std::array<double, kSums> sums{};
  const auto* const data = tensor.const_data_ptr<Element>();
  const std::size_t size = tensor.numel();
  const std::size_t whole = size / kSums * kSums;
  for (std::size_t i = 0; i < whole; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const auto value = static_cast<double>(static_cast<float>(data[i + k]));
      sums[k] += value * value;
    }
  }
  for (std::size_t i = whole; i < size; ++i) {
    const auto value = static_cast<double>(static_cast<float>(data[i]));
    sums[i - whole] += value * value;
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

double SquaredNorm(const at::Tensor& tensor) {
  PENSTOCK_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
                 "a gradient is not dense or not on the CPU");
  if (tensor.scalar_type() == at::kBFloat16) return SquaredNormOf<at::BFloat16>(tensor);
  return SquaredNormOf<float>(tensor);
}

std::vector<double> SquaredNorms(std::span<const at::Tensor> tensors) {
  std::vector<double> squared;
  if (tensors.empty() || tensors.front().is_cpu()) {
    for (const at::Tensor& tensor : tensors) squared.push_back(SquaredNorm(tensor));
    return squared;
  }
  std::vector<at::Tensor> norms;
  for (const at::Tensor& tensor : tensors) {
    norms.push_back(at::linalg_vector_norm(tensor, 2, std::nullopt, false, at::kDouble));
  }
  const at::Tensor read = at::stack(norms).cpu();
  for (const double norm : std::span(read.const_data_ptr<double>(), norms.size())) {
    squared.push_back(norm * norm);
  }
  return squared;
}

}  // namespace penstock
