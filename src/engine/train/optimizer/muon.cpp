#include "train/optimizer/muon.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/stage/gradient_norm.h"

namespace penstock {
namespace {

constexpr int kNewtonSchulzSteps = 5;
constexpr double kLeastNorm = 1e-7;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // of x -> a x + b x^3 + c x^5
constexpr std::int64_t kGrain = 1 << 15;                  // elements per thread

std::int64_t SmallerSide(const Matrices& size) { return std::min(size.rows, size.columns); }

void Grow(at::Tensor& tensor, std::int64_t elements, c10::Device device) {
  if (tensor.defined() && tensor.numel() >= elements) return;
  tensor = at::empty({elements}, at::TensorOptions().dtype(at::kFloat).device(device));
}

// Calls `run` with the elements of a tensor, which are fp32 or bf16.
template <class Run>
void WithElements(const at::Tensor& tensor, const Run& run) {
  if (tensor.scalar_type() == at::kBFloat16) return run(tensor.const_data_ptr<at::BFloat16>());
  run(tensor.const_data_ptr<float>());
}

}  // namespace

double MuonScale(std::string_view adjust_lr_fn, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  if (adjust_lr_fn == "original") return std::sqrt(std::max(1.0, r / c));
  return 0.2 * std::sqrt(std::max(r, c));
}

void Blend(const at::Tensor& average, const at::Tensor& value, double weight) {
  if (!average.is_cpu()) {
    average.lerp_(value.to(at::kFloat), weight);
    return;
  }
  auto* const to = average.mutable_data_ptr<float>();
  const auto factor = static_cast<float>(weight);
  WithElements(value, [&](const auto* from) {
    at::parallel_for(0, average.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        to[i] += (static_cast<float>(from[i]) - to[i]) * factor;
      }
    });
  });
}

void NesterovDirection(const at::Tensor& to, const at::Tensor& momentum, const at::Tensor& gradient,
                       double weight) {
  if (!to.is_cpu()) {
    at::Tensor out = to;
    at::lerp_out(out, momentum, gradient.to(at::kFloat), weight);
    return;
  }
  auto* const out = to.mutable_data_ptr<float>();
  const auto* const m = momentum.const_data_ptr<float>();
  const auto factor = static_cast<float>(weight);
  WithElements(gradient, [&](const auto* g) {
    at::parallel_for(0, to.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        out[i] = m[i] - (m[i] - static_cast<float>(g[i])) * factor;
      }
    });
  });
}

void Orthogonalizer::Reserve(const Matrices& size, c10::Device device) {
  const std::int64_t small = SmallerSide(size);
  Grow(x_, size.elements(), device);
  Grow(next_, size.elements(), device);
  Grow(square_, small * small, device);
  Grow(product_, small * small, device);
}

std::int64_t Orthogonalizer::bytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor* tensor : {&x_, &next_, &square_, &product_}) {
    if (tensor->defined()) bytes += static_cast<std::int64_t>(tensor->nbytes());
  }
  return bytes;
}

std::int64_t Orthogonalizer::BytesFor(const std::vector<Matrices>& sizes) {
  std::int64_t largest = 0, small = 0;
  for (const Matrices& size : sizes) {
    largest = std::max(largest, size.elements());
    small = std::max(small, SmallerSide(size));
  }
  return 2 * (largest + small * small) * static_cast<std::int64_t>(sizeof(float));
}

at::Tensor Orthogonalizer::Input(const Matrices& size) { return x_.narrow(0, 0, size.elements()); }

at::Tensor Orthogonalizer::Run(const Matrices& size) {
  const std::int64_t small = SmallerSide(size);
  const at::Tensor flat = Input(size);
  if (flat.is_cpu()) {
    flat.mul_(1 / std::max(std::sqrt(SquaredNorm(flat)), kLeastNorm));
  } else {  // without a wait of the host
    flat.div_(at::linalg_vector_norm(flat).clamp_min(kLeastNorm));
  }
  // The product with the transpose is the smaller one of the wide matrix.
  const auto wide = [&](const at::Tensor& elements) {
    const at::Tensor matrix =
        elements.narrow(0, 0, size.elements()).view({size.rows, size.columns});
    return size.rows > size.columns ? matrix.t() : matrix;
  };
  at::Tensor square = square_.narrow(0, 0, small * small).view({small, small});
  at::Tensor product = product_.narrow(0, 0, small * small).view({small, small});
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    const at::Tensor x = wide(x_);
    at::Tensor next = wide(next_);
    at::mm_out(square, x, x.t());
    at::addmm_out(product, square, square, square, kB, kC);
    at::addmm_out(next, x, product, x, kA, 1);
    std::swap(x_, next_);
  }
  return Input(size);
}

}  // namespace penstock
