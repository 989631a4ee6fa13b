// Meta kernels for ops whose meta kernels PyTorch implements in Python, outside of libtorch.
#include <ATen/ExpandUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include "base/index.h"
#include "graph/capture/shapes_only.h"

namespace penstock {
namespace {

at::Tensor Empty(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().memory_format(std::nullopt));
}

at::Tensor Embedding(const at::Tensor& weight, const at::Tensor& indices, std::int64_t, bool,
                     bool) {
  std::vector<std::int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return Empty(sizes, weight);
}

at::Tensor EmbeddingBackward(const at::Tensor& gradient, const at::Tensor&, std::int64_t rows,
                             std::int64_t, bool) {
  return Empty({rows, gradient.size(-1)}, gradient);
}

// The CPU kernels lay out gradients as [batch, rows, heads, dim].
at::Tensor EmptyWithHeadsInside(const at::Tensor& like) {
  return Empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like).transpose(1, 2);
}

// The output has the layout of the query; the log-sum-exp is laid out as [batch, rows, heads].
std::tuple<at::Tensor, at::Tensor> AttentionShape(const at::Tensor& query, const at::Tensor&,
                                                  const at::Tensor&, double, bool,
                                                  const std::optional<at::Tensor>&,
                                                  std::optional<double>) {
  const auto sum_type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor sums =
      at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(sum_type));
  return {at::empty_like(query), sums.transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionBackward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor&, const at::Tensor&, double, bool, const std::optional<at::Tensor>&,
    std::optional<double>) {
  return {EmptyWithHeadsInside(query), EmptyWithHeadsInside(key), EmptyWithHeadsInside(value)};
}

at::Tensor Where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return at::empty(sizes, self.options().dtype(at::result_type(self, other)));
}

at::Tensor& WhereOut(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other,
                     at::Tensor& out) {
  out.resize_(Where(condition, self, other).sizes());
  return out;
}

at::Tensor IndexSelect(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[Index(at::maybe_wrap_dim(dim, self.dim()))] = index.numel();
  return Empty(sizes, self);
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("where.self", Where);
  library.impl("where.self_out", WhereOut);
  library.impl("index_select", IndexSelect);
  library.impl("embedding", Embedding);
  library.impl("embedding_dense_backward", EmbeddingBackward);
  library.impl("_scaled_dot_product_flash_attention_for_cpu", AttentionShape);
  library.impl("_scaled_dot_product_flash_attention_for_cpu_backward", AttentionBackward);
}

}  // namespace

void LinkMetaKernels() {}

}  // namespace penstock
