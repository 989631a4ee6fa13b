#include "graph/ops/bf16_kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_cpu_dispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_cpu_dispatch.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "graph/kernel/processor.h"
#include "graph/ops/bf16_matmul.h"

namespace penstock {
namespace {

using at::Scalar;
using at::Tensor;

// Calls that are not plain bf16 products are passed to ATen's kernels, which also report errors.
bool IsBf16(const Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

bool AreMatrices(const Tensor& a, const Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && IsBf16Product(a.unsqueeze(0), b.unsqueeze(0));
}

// Returns whether `added` is bf16 and expands to the sizes of a product.
bool ExpandsTo(const Tensor& added, std::initializer_list<std::int64_t> sizes) {
  return IsBf16(added) && at::is_expandable_to(added.sizes(), at::IntArrayRef(sizes));
}

Tensor Product(const Tensor& a, const Tensor& b, const Tensor& added, const Scalar& beta,
               const Scalar& alpha) {
  return BatchedProduct(a.unsqueeze(0), b.unsqueeze(0), added, beta.to<float>(), alpha.to<float>())
      .squeeze(0);
}

Tensor& Write(const Tensor& result, Tensor& out) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor Mm(const Tensor& a, const Tensor& b) {
  if (!IsBf16(a) || !AreMatrices(a, b)) return at::cpu::mm(a, b);
  return Product(a, b, {}, 0, 1);
}
Tensor& MmOut(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!IsBf16(a) || !IsBf16(out) || !AreMatrices(a, b)) return at::cpu::mm_outf(a, b, out);
  return Write(Product(a, b, {}, 0, 1), out);
}

bool CanAddmm(const Tensor& added, const Tensor& a, const Tensor& b) {
  return IsBf16(a) && AreMatrices(a, b) && ExpandsTo(added, {a.size(0), b.size(1)});
}
Tensor Addmm(const Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  if (!CanAddmm(added, a, b)) return at::cpu::addmm(added, a, b, beta, alpha);
  return Product(a, b, added, beta, alpha);
}
Tensor& AddmmOut(const Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
                 const Scalar& alpha, Tensor& out) {
  if (!IsBf16(out) || !CanAddmm(added, a, b)) {
    return at::cpu::addmm_outf(added, a, b, beta, alpha, out);
  }
  return Write(Product(a, b, added, beta, alpha), out);
}
Tensor& AddmmInPlace(Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) {
  if (!CanAddmm(added, a, b) || added.dim() != 2) {
    return at::cpu::addmm_(added, a, b, beta, alpha);
  }
  return added.copy_(Product(a, b, added, beta, alpha));
}

Tensor Bmm(const Tensor& a, const Tensor& b) {
  if (!IsBf16(a) || !IsBf16Product(a, b)) return at::cpu::bmm(a, b);
  return BatchedProduct(a, b, {}, 0, 1);
}
Tensor& BmmOut(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!IsBf16(a) || !IsBf16(out) || !IsBf16Product(a, b)) return at::cpu::bmm_outf(a, b, out);
  return Write(BatchedProduct(a, b, {}, 0, 1), out);
}

bool CanBaddbmm(const Tensor& added, const Tensor& a, const Tensor& b) {
  return IsBf16(a) && IsBf16Product(a, b) && ExpandsTo(added, {a.size(0), a.size(1), b.size(2)});
}
Tensor Baddbmm(const Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  if (!CanBaddbmm(added, a, b)) return at::cpu::baddbmm(added, a, b, beta, alpha);
  return BatchedProduct(a, b, added, beta.to<float>(), alpha.to<float>());
}
Tensor& BaddbmmOut(const Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  if (!IsBf16(out) || !CanBaddbmm(added, a, b)) {
    return at::cpu::baddbmm_outf(added, a, b, beta, alpha, out);
  }
  return Write(BatchedProduct(a, b, added, beta.to<float>(), alpha.to<float>()), out);
}
Tensor& BaddbmmInPlace(Tensor& added, const Tensor& a, const Tensor& b, const Scalar& beta,
                       const Scalar& alpha) {
  if (!CanBaddbmm(added, a, b) || added.dim() != 3) {
    return at::cpu::baddbmm_(added, a, b, beta, alpha);
  }
  return added.copy_(BatchedProduct(a, b, added, beta.to<float>(), alpha.to<float>()));
}

Tensor Widened(const Tensor& tensor) { return tensor.to(at::kFloat); }
Tensor Rounded(const Tensor& tensor) { return tensor.to(at::kBFloat16); }
// Does not change a mask of booleans.
std::optional<Tensor> WidenedMask(const std::optional<Tensor>& mask) {
  return mask && mask->defined() && IsBf16(*mask) ? Widened(*mask) : mask;
}

std::tuple<Tensor, Tensor> Attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                     double dropout, bool causal, const std::optional<Tensor>& mask,
                                     std::optional<double> scale) {
  const auto run = at::cpu::_scaled_dot_product_flash_attention_for_cpu;
  if (!IsBf16(query)) return run(query, key, value, dropout, causal, mask, scale);
  auto [output, sums] =
      run(Widened(query), Widened(key), Widened(value), dropout, causal, WidenedMask(mask), scale);
  return {Rounded(output), std::move(sums)};
}

std::tuple<Tensor, Tensor, Tensor> AttentionBackward(const Tensor& gradient, const Tensor& query,
                                                     const Tensor& key, const Tensor& value,
                                                     const Tensor& output, const Tensor& sums,
                                                     double dropout, bool causal,
                                                     const std::optional<Tensor>& mask,
                                                     std::optional<double> scale) {
  const auto run = at::cpu::_scaled_dot_product_flash_attention_for_cpu_backward;
  if (!IsBf16(query)) {
    return run(gradient, query, key, value, output, sums, dropout, causal, mask, scale);
  }
  const auto [of_query, of_key, of_value] =
      run(Widened(gradient), Widened(query), Widened(key), Widened(value), Widened(output), sums,
          dropout, causal, WidenedMask(mask), scale);
  return {Rounded(of_query), Rounded(of_key), Rounded(of_value)};
}

// libtorch warns about kernels that replace others.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

Bf16Kernels::Bf16Kernels()
    : library_(std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU,
                                                __FILE__, __LINE__)) {
  NoWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  library_->impl("mm", Mm);
  library_->impl("mm.out", MmOut);
  library_->impl("addmm", Addmm);
  library_->impl("addmm.out", AddmmOut);
  library_->impl("addmm_", AddmmInPlace);
  library_->impl("bmm", Bmm);
  library_->impl("bmm.out", BmmOut);
  library_->impl("baddbmm", Baddbmm);
  library_->impl("baddbmm.out", BaddbmmOut);
  library_->impl("baddbmm_", BaddbmmInPlace);
  library_->impl("_scaled_dot_product_flash_attention_for_cpu", Attention);
  library_->impl("_scaled_dot_product_flash_attention_for_cpu_backward", AttentionBackward);
}

Bf16Kernels::~Bf16Kernels() = default;

bool NeedsBf16Kernels() { return ChooseKernels(ThisProcessor()).bf16_in_fp32; }

void InstallBf16Kernels() {
  static const auto kernels = NeedsBf16Kernels() ? std::make_unique<Bf16Kernels>() : nullptr;
  (void)kernels;
}

}  // namespace penstock
